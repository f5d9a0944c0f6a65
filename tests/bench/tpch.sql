-- What `make bench-tpch` runs: five queries of TPC-H (clause 2.4), with the values of its validation, one after the other.

-- Q1, pricing summary report
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM lineitem WHERE l_shipdate <= DATE'1998-12-01' - INTERVAL 90 DAYS
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus;

-- Q3, shipping priority
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE'1995-03-15' AND l_shipdate > DATE'1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10;

-- Q4, order priority checking
SELECT o_orderpriority, count(*) FROM orders
WHERE o_orderdate >= DATE'1993-07-01' AND o_orderdate < DATE'1993-10-01'
  AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority;

-- Q6, forecasting revenue change
SELECT sum(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= DATE'1994-01-01' AND l_shipdate < DATE'1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24;

-- Q12, shipping modes and order priority
SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')), count_if(o_orderpriority NOT IN ('1-URGENT', '2-HIGH'))
FROM orders JOIN lineitem ON o_orderkey = l_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= DATE'1994-01-01' AND l_receiptdate < DATE'1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode;
