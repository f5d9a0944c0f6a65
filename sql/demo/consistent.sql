-- The ACID query of the TPC-H specification, for all orders at once, in database version ${version}: what an order says
-- it costs must be what its lines add up to. An order without lines, or a line without its order, is wrong too.

SELECT count(o_orderkey) AS orders,
       sum(lines) AS lines,
       (SELECT count(*) FROM lake.tpch.history FOR SYSTEM_VERSION AS OF ${version}) AS history,
       count_if(o_totalprice IS DISTINCT FROM total) AS wrong
FROM lake.tpch.orders FOR SYSTEM_VERSION AS OF ${version} FULL OUTER JOIN (
  SELECT l_orderkey,
         count(*) AS lines,
         sum(floor(floor(l_extendedprice * (1 - l_discount), 2) * (1 + l_tax), 2)) AS total
  FROM lake.tpch.lineitem FOR SYSTEM_VERSION AS OF ${version}
  GROUP BY l_orderkey
) ON l_orderkey = o_orderkey;
