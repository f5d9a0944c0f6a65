-- TPC-H's refresh function RF1, new sales: orders arrive together with their line items.
-- Parameter: the session variable refresh_orders, how many (scale factor * 1500).
--
-- The generator uses 8 of every 32 order keys and leaves the gaps to RF1: a new order gets the key of an old one + 8. It
-- has that one's lines (1 to 7), with other quantities and so other prices.

BEGIN COMMENT 'RF1, new sales';

INSERT INTO lake.tpch.lineitem
SELECT l_orderkey + 8, l_partkey, l_suppkey, l_linenumber, 51 - l_quantity,
       CAST(l_extendedprice / l_quantity AS DECIMAL(15, 2)) * (51 - l_quantity),
       l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,
       l_shipinstruct, l_shipmode, l_comment
FROM lake.tpch.lineitem
WHERE l_orderkey IN (
  SELECT o_orderkey FROM lake.tpch.orders ORDER BY xxhash64(o_orderkey), o_orderkey LIMIT refresh_orders
);

-- Reads the lines that the statement before has written: nobody else sees them yet.
INSERT INTO lake.tpch.orders
SELECT l_orderkey, o_custkey, o_orderstatus, total, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment
FROM lake.tpch.orders JOIN (
  SELECT l_orderkey, sum(floor(floor(l_extendedprice * (1 - l_discount), 2) * (1 + l_tax), 2)) AS total
  FROM lake.tpch.lineitem GROUP BY l_orderkey
) ON l_orderkey = o_orderkey + 8;

COMMIT;
