-- Eight tables of TPC-H and the HISTORY of its ACID tests, from generated Parquet files, all in one transaction.
-- The folder of the files is Spark's setting tpch.data: SET tpch.data = /some/folder.

BEGIN COMMENT 'load TPC-H';

CREATE NAMESPACE lake.tpch;

CREATE TABLE lake.tpch.region   AS SELECT * FROM parquet.`${tpch.data}/region.parquet`;
CREATE TABLE lake.tpch.nation   AS SELECT * FROM parquet.`${tpch.data}/nation.parquet`;
CREATE TABLE lake.tpch.supplier AS SELECT * FROM parquet.`${tpch.data}/supplier.parquet`;
CREATE TABLE lake.tpch.customer AS SELECT * FROM parquet.`${tpch.data}/customer.parquet`;
CREATE TABLE lake.tpch.part     AS SELECT * FROM parquet.`${tpch.data}/part.parquet`;
CREATE TABLE lake.tpch.partsupp AS SELECT * FROM parquet.`${tpch.data}/partsupp.parquet`;
CREATE TABLE lake.tpch.orders   AS SELECT * FROM parquet.`${tpch.data}/orders.parquet`;
CREATE TABLE lake.tpch.lineitem AS SELECT * FROM parquet.`${tpch.data}/lineitem.parquet`;

CREATE TABLE lake.tpch.history (
  h_p_key BIGINT, h_s_key BIGINT, h_o_key BIGINT, h_l_key INT, h_delta INT, h_date_t TIMESTAMP
);

COMMIT;
