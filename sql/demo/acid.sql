-- The ACID transaction of the TPC-H specification (clause 3.1): one line of one order grows by `delta` pieces.
-- Parameters: the session variables o_key, l_key and delta.

DECLARE OR REPLACE VARIABLE total DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE quantity DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE price DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE discount DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE tax DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE new_price DECIMAL(15, 2);
DECLARE OR REPLACE VARIABLE p_key BIGINT;
DECLARE OR REPLACE VARIABLE s_key BIGINT;

BEGIN COMMENT 'ACID transaction';

SET VAR total = (SELECT o_totalprice FROM lake.tpch.orders WHERE o_orderkey = o_key);
SET VAR (quantity, price, discount, tax, p_key, s_key) = (
  SELECT l_quantity, l_extendedprice, l_discount, l_tax, l_partkey, l_suppkey
  FROM lake.tpch.lineitem WHERE l_orderkey = o_key AND l_linenumber = l_key
);

-- The specification's trunc(…, 2), of positive amounts, is floor(…, 2) here.
SET VAR new_price = price + floor(floor(price / quantity, 2) * delta, 2);
SET VAR total = total
              - floor(floor(price * (1 - discount), 2) * (1 + tax), 2)
              + floor(floor(new_price * (1 - discount), 2) * (1 + tax), 2);

UPDATE lake.tpch.lineitem SET l_extendedprice = new_price, l_quantity = quantity + delta
WHERE l_orderkey = o_key AND l_linenumber = l_key;

UPDATE lake.tpch.orders SET o_totalprice = total WHERE o_orderkey = o_key;

INSERT INTO lake.tpch.history VALUES (p_key, s_key, o_key, l_key, delta, current_timestamp());

COMMIT;
