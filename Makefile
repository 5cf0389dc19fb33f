# Everything runs from .venv, which the targets make for themselves from the locked requirements.

# Distributions and python.org build Python with optimisations, which saves a fifth of the time and more; pyenv does
# only if told to. So where python3 was built without, the system's own is taken, if it is new enough.
OPTIMISED := import ensurepip, sys, sysconfig as c; sys.exit(sys.version_info < (3, 11) or not ( \
	sys.base_prefix == "/usr" or "--enable-optimizations" in (c.get_config_var("CONFIG_ARGS") or "")))
ifndef PYTHON
PYTHON := $(shell for one in python3 /usr/bin/python3; do \
	$$one -c '$(OPTIMISED)' 2>/dev/null && echo $$one && exit; done; echo python3)
endif
# Set where containers are built, it would have every process compile the whole broker anew: a test run starts hundreds.
unexport PYTHONDONTWRITEBYTECODE
# Worker processes of the test run, twice as many as two cores because some tests mostly wait; 0 runs the tests in one
# process, for a debugger. Each gets neighbouring tests, which share servers and brokers, and whoever is done takes over
# from the others.
WORKERS ?= 4
# Further arguments of serve, test and bench: make test ARGS="-k lease"
ARGS ?=
# The tests that make test-all runs: all, or with TIER=rest those that make test leaves out (tests/tiers.py).
TIER ?= all
# Directories of tests are held to their budgets of CPU seconds where the variable CI is set.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(CI),--hold-budgets)

BIN := .venv/bin
SERVER := .venv/.server
DEV := .venv/.dev
PIP := python -m pip --disable-pip-version-check --quiet install
# A lock file names every package. Without --no-deps an older pip takes the newest release of a package that is required
# with extras, instead of the locked one.
LOCKED := $(PIP) --no-deps --require-hashes --requirement
EDITABLE := $(PIP) --no-build-isolation --no-deps --editable .
UV_VERSION := 0.13.7
# The published clients that the tests drive, and the tests that the newest brings along.
QUEEN := .venv-queen-0.15.0/.ready .venv-queen-2.6.0/.ready .venv-queen-2.6.0/.suite
COMPILE := .venv-lock/bin/uv pip compile --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet
LOCK := $(COMPILE) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help serve test test-all quick check docs bench bench-full bench-peers fuzz faults faults-full campaign soak lock dist sbom queen tools clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 13

serve: $(SERVER)  ## run the broker
	$(BIN)/fairlane serve $(ARGS)

test: $(DEV) tools  ## run the quick tests, on SQLite and on a real PostgreSQL server, in six minutes
	$(PYTEST) --tier quick $(ARGS)

test-all: $(DEV) queen tools .venv-lowest/.ready .venv-generators/.ready  ## run every test: also on further stores, in a browser, with faults, and the pages of docs/
	$(PYTEST) --tier $(TIER) $(ARGS)

quick: $(DEV)  ## run the quick tests that failed last time, or else all of them, up to the first failure
	$(PYTEST) --tier quick --exitfirst --last-failed $(ARGS)

check: $(DEV) docs  ## format, lint, types, import rules, the site of docs/
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv-docs/.ready  ## make the site of docs/ in build/docs; a warning fails it
	.venv-docs/bin/sphinx-build --fail-on-warning --keep-going --quiet --jobs auto $(ARGS) docs build/docs

bench: $(DEV) .venv-peers/.ready  ## measure Fairlane beside other systems, about 20 minutes; ARGS="http growth" some sections
	$(BIN)/python -m bench $(ARGS)

bench-full: $(DEV) .venv-peers/.ready  ## the same with more and longer rounds and a larger backlog
	$(BIN)/python -m bench --full $(ARGS)

# Debian's servers of other queues; RUNLEVEL keeps the packages from starting a service.
bench-peers: .venv-peers/.ready  ## install the systems that bench compares with: Redis, NATS, RabbitMQ
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --yes --quiet --no-install-recommends redis-server nats-server rabbitmq-server

fuzz: $(DEV)  ## feed every parser what atheris makes of seeds, and every operation a hundred requests made from /openapi.json; ARGS="--seconds 60 --cases 1000"
	$(BIN)/python -m tests.fuzz $(ARGS)

faults: $(DEV)  ## random faults on each store, and a check of every promise; takes ten minutes
	$(BIN)/python -m pytest -p no:xdist tests/history/full_size.py $(ARGS)

faults-full: $(DEV) tools  ## freeze, stop and kill the store and brokers under load, at full size; takes half an hour
	$(BIN)/python -m pytest -p no:xdist tests/faults/full_size.py tests/faults/slow_clients.py tests/faults $(ARGS)

campaign: $(DEV)  ## every experiment of docs/reliability.md for five hours, continued when interrupted; ARGS="--hours 1"
	$(BIN)/python -m tests.campaign $(ARGS)

soak: $(DEV)  ## run steady traffic on both stores for two hours, and show what grows; ARGS="--minutes 15"
	$(BIN)/python -m tests.soak $(ARGS)

# The first resolution bounds the second, so that both files pin one version of each package.
lock: .venv-lock/bin/uv  ## renew requirements/*.txt
	$(LOCK) $(ARGS) --extra server --group build --output-file requirements/server.txt
	$(LOCK) $(ARGS) --extra dev --group build --constraint requirements/server.txt --output-file requirements/dev.txt
	$(LOCK) $(ARGS) --extra server --group lowest --resolution lowest-direct --output-file requirements/lowest.txt
	$(COMPILE) $(ARGS) --group pyproject.toml:queen-0.15.0 --output-file requirements/queen-0.15.0.txt
	$(COMPILE) $(ARGS) --group pyproject.toml:queen-2.6.0 --output-file requirements/queen-2.6.0.txt
	$(COMPILE) $(ARGS) --group pyproject.toml:peers --output-file requirements/peers.txt
	$(COMPILE) $(ARGS) --group pyproject.toml:generators --output-file requirements/generators.txt
	$(COMPILE) $(ARGS) --group pyproject.toml:docs --output-file requirements/docs.txt

dist: $(SERVER)  ## build the wheel and the source package in dist/
	$(BIN)/python -m hatchling build

sbom: $(DEV)  ## list what a release consists of, as CycloneDX, from the lock: build/sbom.json
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-format JSON --output-file build/sbom.json requirements/server.txt

queen: $(QUEEN)  ## fetch the published queen-mq clients that the tests drive

# Some tests put a real pgbouncer in front of PostgreSQL, others ask promtool what it thinks of the alert rules, open
# the dashboard in chromium, or drive a broker with wrk. They are skipped without, so a failure to install one is no failure of the build. RUNLEVEL keeps the packages from starting a service.
tools:
	@for tool in pgbouncer:pgbouncer promtool:prometheus chromium:chromium nginx:nginx caddy:caddy slowhttptest:slowhttptest wrk:wrk \
		haproxy:haproxy etcd:etcd-server patroni:patroni /usr/lib/postgresql/15/bin/postgres:postgresql-15; do \
		command -v $${tool%:*} >/dev/null || test -x /usr/sbin/$${tool%:*} || { \
			test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { \
				export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
				install="apt-get install --yes --quiet --no-install-recommends $${tool#*:}"; \
				$$install || { apt-get update --quiet && $$install; }; \
			} >/dev/null 2>&1; \
		} || echo "NO $${tool%:*}: the tests that need it will be skipped"; \
	done

clean:  ## remove the environment and every cache
	rm -rf .venv .venv-docs .venv-generators .venv-lock .venv-lowest .venv-peers .venv-queen-* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv

$(SERVER): requirements/server.txt pyproject.toml | $(BIN)/python
	$(BIN)/$(LOCKED) requirements/server.txt
	$(BIN)/$(EDITABLE)
	@touch $@

$(DEV): requirements/dev.txt $(SERVER)
	$(BIN)/$(LOCKED) requirements/dev.txt
	@touch $@

.venv-queen-%/.ready: requirements/queen-%.txt
	$(PYTHON) -m venv .venv-queen-$*
	.venv-queen-$*/bin/$(LOCKED) $<
	@touch $@

# The lowest versions that the base install allows, for tests/packaging.
.venv-lowest/.ready: requirements/lowest.txt pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/$(LOCKED) $<
	.venv-lowest/bin/$(EDITABLE)
	@touch $@

.venv-peers/.ready .venv-docs/.ready .venv-generators/.ready: .venv-%/.ready: requirements/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/$(LOCKED) $<
	@touch $@

# Only the source package has the tests. Its hash is the lock file's too; pip insists on reading the metadata of what
# it downloads, for which this environment has the build tool.
.venv-queen-2.6.0/.suite: .venv-queen-2.6.0/.ready
	sed -n '/^queen-mq==/,/[^\\]$$/p' requirements/queen-2.6.0.txt > .venv-queen-2.6.0/sdist.txt
	.venv-queen-2.6.0/bin/python -m pip --disable-pip-version-check --quiet download --no-deps --no-build-isolation \
		--no-binary queen-mq --require-hashes --requirement .venv-queen-2.6.0/sdist.txt --dest .venv-queen-2.6.0/sdist
	.venv-queen-2.6.0/bin/python -m tarfile --extract .venv-queen-2.6.0/sdist/queen_mq-2.6.0.tar.gz .venv-queen-2.6.0/suite
	@touch $@

.venv-lock/bin/uv:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/$(PIP) uv==$(UV_VERSION)
