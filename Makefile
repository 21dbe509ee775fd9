# Everything one does with this clone. `make` alone lists it.
# What is fetched or built for it lies outside, in $LOWTIDE_CACHE or $XDG_CACHE_HOME/lowtide or ~/.cache/lowtide.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# A job starts a dozen processes that import hundreds of modules: half of that is compiling, unless it is kept.
unexport PYTHONDONTWRITEBYTECODE

# The Python that the environment is made with; 3.11 or newer.
PYTHON ?= python3
# Arguments for the target's command, where its help says so.
ARGS ?=
# Of `make chaos`: how many processes are killed, and the seed of its schedule; without one it draws one. HOSTS=1 cuts,
# freezes and loses hosts of a cluster instead, for which it needs root.
KILLS ?= 20
SEED ?=
# Of `make soak`: how long the load lasts; KILLS are 6 there.
MINUTES ?= 30
# Of `make outlets-chaos`: how long the schedule is; SEED is 7 there if there is none.
SECONDS ?= 600

HOUSE := $(PYTHON) tools/environment.py
ENV = $(or $(CACHED_ENV),$(eval CACHED_ENV := $(shell $(HOUSE) path))$(CACHED_ENV))
RUN = $(ENV)/bin/python
# The oldest Airflow has the packages of its own days, but for those that Lowtide and its tests need newer.
AIRFLOW_3_0_6 := 2025-09-10
NEWER := cloudpickle confluent-kafka editables hatchling hypothesis kazoo moto msgspec psutil pyarrow pyspark pytest \
    pytest-xdist setuptools xxhash
UNDER_AIRFLOW := tests/airflow_page tests/dag_runs tests/under_airflow
# Of `make test-airflow-at`: an Airflow in between, and the day whose packages stand beside it; it has no lock file.
AIRFLOW ?= 3.2.2
DAY ?= 2026-06-20
AIRFLOW_AT = build/airflow-$(AIRFLOW)
OLDEST_AIRFLOW = $(shell $(HOUSE) path oldest-airflow)/bin/python
UNIT := not (spark or kafka or zookeeper or s3 or azure or postgres or redis or airflow or slow)

.PHONY: help
help:  ## list the targets
	@echo "Targets (ARGS='…' where it says so):"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: env-oldest-airflow
env-oldest-airflow:
	@$(HOUSE) ensure oldest-airflow

.PHONY: env
env:  ## build the Python environment from requirements.lock, and link .venv to it
	@command -v $(PYTHON) >/dev/null || { printf '%s\n' "error: there is no $(PYTHON) on PATH" \
	    "       install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(HOUSE) ensure

.PHONY: jars
jars: env  ## fetch the third-party jars: Spark's Kafka connector, Kafka's broker
	@$(RUN) -m lowtide.jars.third_party

.PHONY: jar
jar: env  ## compile the Java shim
	@$(RUN) -m lowtide.jars.build

.PHONY: classes
classes: jars jar  ## rehearse a job, so that Spark's and Kafka's JVMs start in half the time; once
	@$(RUN) -m lowtide.rehearsal

.PHONY: s3-server
s3-server:  ## build the tests' S3 server with Go; without Go the tests take moto
	@tools/s3-server build

.PHONY: azurite
azurite:  ## install the tests' server for Azure with npm, where there is npm
	@tools/azurite-server build

.PHONY: postgres
postgres:  ## install the tests' PostgreSQL, where there is none and this user may
	@tools/postgres

.PHONY: redis
redis:  ## install the tests' Redis, where there is none and this user may
	@tools/redis

.PHONY: chromium
chromium:  ## install the tests' browser, where this user may
	@tools/chromium

.PHONY: promtool
promtool:  ## build Prometheus' promtool with Go, which takes minutes the first time
	@tools/go-program build promtool

.PHONY: alerts-check
alerts-check: env promtool  ## have promtool evaluate the alert rules, and read the metrics and the board's expressions
	$(RUN) -m pytest plugin/tests/status/test_alerts.py $(ARGS)

.PHONY: format
format: env  ## format all code, and mend what ruff can
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

.PHONY: check
check: env  ## ruff (lint, format, import rules) and mypy --strict over everything
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(ENV)/bin/lint-imports --no-logo
	$(RUN) -m mypy

.PHONY: check-imports
check-imports: env  ## install lowtide-tracker and lowtide-snapshots alone, each with its tests
	@LOWTIDE_PYTHON=$(RUN) LOWTIDE_UV=$$($(HOUSE) uv) tools/check-imports

.PHONY: test
test: classes s3-server azurite postgres redis  ## run all tests but those under Airflow (ARGS='-k name')
	S3=$$(tools/s3-server chosen) $(RUN) -m pytest $(addprefix --ignore=,$(UNDER_AIRFLOW)) \
	    $(or $(ARGS),-n 4 --dist loadscope --durations 20)

.PHONY: test-airflow
test-airflow: classes chromium  ## run the tests under a real Airflow, which `make test` leaves out (ARGS='-k name')
	$(RUN) -m pytest $(UNDER_AIRFLOW) $(or $(ARGS),-m "not nightly" -n 2 --dist loadscope)
	@echo "not part of this run: what make test-nightly runs"

.PHONY: test-airflow-oldest
test-airflow-oldest: classes env-oldest-airflow  ## nightly: the provider's tests and those under Airflow on the oldest one, 3.0.6 (ARGS='-k name')
	$(OLDEST_AIRFLOW) -m pytest $(or $(ARGS),dags/tests tests/dag_runs tests/under_airflow)

.PHONY: test-airflow-at
test-airflow-at: classes  ## nightly: the provider's tests and the DAGs on an Airflow in between (AIRFLOW=3.1.8 DAY=2026-03-25)
	@mkdir -p build && uv=$$($(HOUSE) uv) && $$uv venv --quiet --clear --python $(RUN) $(AIRFLOW_AT)
	@sed 's/^apache-airflow==.*/apache-airflow==$(AIRFLOW)/' dags/oldest/requirements.in > $(AIRFLOW_AT).in
	@uv=$$($(HOUSE) uv) && $$uv pip install --quiet --python $(AIRFLOW_AT)/bin/python --exclude-newer $(DAY) \
	    $(foreach name,$(NEWER),--exclude-newer-package $(name)=false) --override dags/oldest/overrides.txt \
	    -r $(AIRFLOW_AT).in apache-airflow-providers-apache-spark apache-airflow-providers-openlineage
	$(AIRFLOW_AT)/bin/python -m pytest $(or $(ARGS),dags/tests tests/dag_runs)

.PHONY: test-nightly
test-nightly: classes s3-server azurite postgres redis  ## run the tests whose laws cheaper ones hold too, which `make test` leaves out
	S3=$$(tools/s3-server chosen) $(RUN) -m pytest -m nightly $(or $(ARGS),-n 4 --dist loadscope --durations 20)

.PHONY: test-unit
test-unit: env  ## run the tests that need no service and finish in seconds (ARGS='-k name')
	$(RUN) -m pytest -m "$(UNIT)" $(ARGS)

.PHONY: sim
sim: env  ## simulate the core over many seeds, and break every rule on purpose (ARGS='--seed 17', '--help')
	@PYTHONHASHSEED=0 PYTHONPATH=tests:plugin/tests/support $(RUN) -m simulation $(ARGS)

.PHONY: model
model: env  ## explore every order of commit and recovery at small sizes, and break every rule (ARGS='--size states')
	@PYTHONHASHSEED=0 PYTHONPATH=.:plugin/tests/support $(RUN) -m tests.model $(ARGS)

.PHONY: chaos
chaos: $(if $(HOSTS),root) classes s3-server  ## kill a job's processes and services by a schedule, judge its output (KILLS=20 SEED=7; HOSTS=1)
ifdef HOSTS
	@$(ON_HOSTS) PYTHONPATH=infra:infra/hosts:examples $(RUN) -m hosts_chaos $(if $(SEED),--seed $(SEED)) $(ARGS)
else
	@PYTHONHASHSEED=0 PYTHONPATH=tests:examples:snapshots/tests/support $(RUN) -m chaos --kills $(KILLS) \
	    $(if $(SEED),--seed $(SEED)) $(ARGS)
endif

.PHONY: soak
soak: classes s3-server  ## run a job with timers, sessions and a broadcast over kills: does memory grow? (MINUTES=30 KILLS=6)
	@PYTHONPATH=tests:examples:snapshots/tests/support $(RUN) -m soak --minutes $(MINUTES) \
	    $(if $(filter command environment,$(firstword $(origin KILLS))),--kills $(KILLS)) $(ARGS)

.PHONY: outlets-chaos
outlets-chaos: classes s3-server postgres redis  ## a job that writes to all stores, it and their servers killed by a schedule (SECONDS=600 SEED=7)
	SERVERS=needed S3=$$(tools/s3-server chosen) OUTLETS_SECONDS=$(SECONDS) OUTLETS_SEED=$(or $(SEED),7) \
	    $(RUN) -m pytest -q tests/test_all_sinks.py $(ARGS)

.PHONY: demo
demo: env jars jar  ## index real text, kill the driver in the middle, compare every byte (DOCUMENTS=dir, WORD=word)
	@PYTHONPATH=examples $(RUN) -m demo

.PHONY: lake-demo
lake-demo: env jars jar s3-server postgres  ## orders to PostgreSQL, Parquet on S3 and Iceberg, killed once, asked by SQL at the end
	@PYTHONPATH=examples:.:snapshots/tests/support $(RUN) -m lake_demo

.PHONY: airflow
airflow: classes  ## run Airflow beside Kafka and ZooKeeper, the demo's job under it, until Ctrl-C
	@PYTHONPATH=examples:dags/tests/support $(RUN) -m airflow_demo

.PHONY: airflow-demo
airflow-demo: classes  ## Airflow starts, snapshots and recovers the demo's job, whose driver is killed; compare every byte
	@PYTHONPATH=examples:dags/tests/support $(RUN) -m airflow_demo --story

.PHONY: airflow-demo-oldest
airflow-demo-oldest: classes env-oldest-airflow  ## the same on the oldest Airflow, 3.0.6
	@PYTHONPATH=examples:dags/tests/support $(OLDEST_AIRFLOW) -m airflow_demo --story

.PHONY: bench
bench: env $(if $(filter core,$(firstword $(ARGS))),,classes)  ## measure (ARGS='latency --flow passthrough --rate 1000', ARGS='core')
	@$(ENV)/bin/lowtide bench $(if $(filter-out -%,$(firstword $(ARGS))),,latency) $(ARGS)

.PHONY: peers
peers: classes  ## set up Lowtide's peers and measure all alike (ARGS='--systems bytewax,lowtide --table', '--help')
	@LOWTIDE_UV=$$($(HOUSE) uv) $(ENV)/bin/lowtide bench peers $(ARGS)

.PHONY: wheels
wheels: jar  ## build the four wheels, their sdists, constraints and a package index into dist/
	@LOWTIDE_PYTHON=$(RUN) LOWTIDE_UV=$$($(HOUSE) uv) tools/wheels

.PHONY: packaging-check
packaging-check: env  ## check the image file and the Helm chart; builds Helm with Go
	@$$($(HOUSE) uv) run --quiet --no-project --isolated --python $(RUN) \
	    --with-requirements infra/packaging/requirements.lock infra/packaging/check.py

.PHONY: docs
docs: env  ## build the documents and the API reference as a site, into build/docs
	@NO_MKDOCS_2_WARNING=1 $$($(HOUSE) uv) run --quiet --no-project --isolated --python $(RUN) \
	    --with-requirements tools/site/requirements.lock mkdocs build --strict --config-file tools/site/mkdocs.yml
	@echo "read build/docs/index.html; to search it too: python3 -m http.server --directory build/docs"

.PHONY: root
root:
	@[ $$(id -u) = 0 ] || { printf '%s\n' "error: this needs root: it makes network devices and namespaces" \
	    "       sudo make $(firstword $(MAKECMDGOALS)) ..." >&2; exit 1; }

ON_HOSTS = LOWTIDE_PYTHON=$(RUN) LOWTIDE_UV=$$($(HOUSE) uv)
CLUSTER = $(ON_HOSTS) PYTHONPATH=infra/hosts $(RUN) infra/cluster.py

.PHONY: infra-software
infra-software: jars jar s3-server  ## what plain `terraform init` and `apply` need in infra/terraform/local
	@$(CLUSTER) software

.PHONY: infra-up
infra-up: root jars jar s3-server  ## needs root: a cluster of hosts on this machine, by Terraform (ARGS='--var kafka_brokers=1')
	@$(CLUSTER) up $(ARGS)

.PHONY: infra-plan
infra-plan: root jars jar s3-server  ## needs root: what of the cluster is not as it should be
	@$(CLUSTER) plan $(ARGS)

.PHONY: infra-shell
infra-shell: root env  ## needs root: a shell on the cluster's host where jobs are started (ARGS=worker-1: on another)
	@$(CLUSTER) shell $(ARGS)

.PHONY: infra-down
infra-down: root env  ## needs root: destroy the cluster, and count what is left
	@$(CLUSTER) down

.PHONY: infra-check
infra-check: env  ## check Terraform's module for AWS: validate, test, lint and scan it, without AWS
	@LOWTIDE_UV=$$($(HOUSE) uv) $(RUN) infra/check.py

.PHONY: environment-archive
environment-archive: jars jar  ## pack what AWS's hosts install, Python and Spark included, and try it out (ARGS='--glibc 2.36')
	@$(ON_HOSTS) $(RUN) infra/environment_archive.py $(ARGS)

.PHONY: mwaa-archive
mwaa-archive: jar  ## pack what Amazon MWAA installs, and try it out with its images' packages (ARGS='--python PATH')
	@$(ON_HOSTS) $(RUN) infra/mwaa_archive.py $(ARGS)

.PHONY: infra-bench
infra-bench: root jars jar s3-server  ## needs root: latency over a cluster's hosts, and over loopback, in one run
	@$(ON_HOSTS) PYTHONPATH=infra:infra/hosts $(RUN) infra/latency.py $(ARGS)

.PHONY: infra-demo
infra-demo: root jars jar s3-server  ## needs root: the whole story: provision, run, lose a host, recover, compare, destroy
	@$(ON_HOSTS) PYTHONPATH=infra:infra/hosts:dags/tests/support $(RUN) -m story

.PHONY: lock
lock:  ## remake requirements.lock from requirements.in and the pyproject.toml files (ARGS=--upgrade)
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-package lowtide --no-emit-package lowtide-tracker \
	    --no-emit-package lowtide-snapshots --no-emit-package lowtide-airflow --no-emit-package lowtide-bench \
	    $(ARGS) requirements.in --output-file requirements.lock
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-package lowtide --no-emit-package lowtide-tracker \
	    --no-emit-package lowtide-snapshots --no-emit-package lowtide-airflow --no-emit-package lowtide-bench \
	    --exclude-newer $(AIRFLOW_3_0_6) $(foreach name,$(NEWER),--exclude-newer-package $(name)=false) \
	    $(ARGS) dags/oldest/requirements.in --output-file dags/oldest/requirements.lock
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url $(ARGS) infra/hosts/requirements.in --output-file infra/hosts/requirements.lock
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url $(ARGS) infra/packaging/requirements.in --output-file infra/packaging/requirements.lock
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url $(ARGS) infra/checkov/requirements.in --output-file infra/checkov/requirements.lock
	@$$($(HOUSE) uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url $(ARGS) tools/site/requirements.in --output-file tools/site/requirements.lock

.PHONY: lock-jars
lock-jars: env  ## fetch the jars of plugin/lowtide/jars/ivy.xml and remake jars.lock from them
	@$(RUN) -m lowtide.jars.third_party lock

.PHONY: clean
clean:  ## delete what was built inside the clone
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .venv
	@find . -name .git -prune -o \( -name __pycache__ -o -path './plugin/*.jar' \) -exec rm -rf {} +

.PHONY: prune
prune:  ## delete cached environments whose clone or lock file is gone
	@$(HOUSE) prune
