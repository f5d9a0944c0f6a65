-- TPC-H's refresh function RF2, old sales: the oldest orders go together with their line items.
-- Parameter: the session variable refresh_orders, how many (scale factor * 1500).

DECLARE OR REPLACE VARIABLE last_old_key BIGINT;

BEGIN COMMENT 'RF2, old sales';

SET VAR last_old_key = (
  SELECT max(o_orderkey) FROM (SELECT o_orderkey FROM lake.tpch.orders ORDER BY o_orderkey LIMIT refresh_orders)
);
DELETE FROM lake.tpch.lineitem WHERE l_orderkey <= last_old_key;
DELETE FROM lake.tpch.orders WHERE o_orderkey <= last_old_key;

COMMIT;
