# Development tasks: 'make help' lists them. They need make and Python 3.11 or newer; all other tools go into .venv.

SHELL := /bin/sh
# With it every process of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
# Directory of the tools; tox sets its own.
BIN := $(VENV)/bin
CONFIG := config/broker.xml
# Most tests wait for their brokers, so that four at a time take little more than a quarter of the time.
# tests/conftest.py defines groups and order.
PARALLEL := -n 4 --dist loadgroup --no-loadscope-reorder

# The newest Python that starts: version managers install names of versions that do not exist.
find_python = for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done

.PHONY: help run test test-long test-quick test-spark test-compiled suite compiled lint types imports docs image docs-check schema wheel wheels package bench bench-docs scaling crash failover kills fuzz audit format clean check-lint check-types check-imports

help:
	@echo 'make run         start the broker with $(CONFIG) (other file: make run CONFIG=...); compiles in the background'
	@echo 'make test        the tests: in memory, sockets, console, command line, Spark, and the compiled build where a C compiler is'
	@echo 'make test-quick  the rules in memory; 90 seconds'
	@echo 'make test-long   all tests with all parameters, on both builds, and short campaigns'
	@echo 'make test-spark  the part of make test with Spark'
	@echo 'make test-compiled  the part of make test over sockets, on the compiled build'
	@echo 'make lint        ruff: errors and format; bandit; what mypyc compiles to something else; tsc for the console.'
	@echo '                 make format corrects the format'
	@echo 'make types       mypy --strict'
	@echo 'make imports     import-linter: dependencies between packages'
	@echo 'make docs-check  test the documentation against the code'
	@echo 'make schema      write the settings in schema.xsd from their rows'
	@echo 'make docs        build the documentation as a site in site/'
	@echo 'make wheel       build the wheel and the sdist in dist/'
	@echo 'make wheels      the same, and a compiled wheel for this machine and Python (PYTHONS="python3.12 python3.13": for these);'
	@echo '                 cibuildwheel builds those of a release'
	@echo 'make compiled    a compiled copy of this checkout in build/compiled; needs a C compiler'
	@echo 'make package     install the wheel into an empty environment, and check it there'
	@echo 'make image       build the container image stompring with docker, podman or buildah'
	@echo 'make bench       compare throughput and latency with other brokers, if installed; needs a C compiler'
	@echo 'make scaling     the same as connections, queues, bodies and subscribers grow'
	@echo 'make bench-docs  write the plots of docs/dev/performance.md from benchmarks/results'
	@echo 'make crash       kill the broker under load, 500 times, and check every receipted message; see docs/dev/testing.md'
	@echo 'make failover    three NATS nodes, two brokers, 200 faults, and every receipted message; see docs/dev/testing.md'
	@echo 'make kills       kill Spark and the broker, 20 times each, and check every message in the lake and in a replay'
	@echo 'make fuzz        coverage-guided fuzzing of every parser; 10 minutes per target'
	@echo 'make audit       bandit for the package, pip-audit for its dependencies (needs network access)'
	@echo 'make clean       remove generated files, including .venv'

# The compiled copy in build/compiled runs if it is up to date. Otherwise the checkout runs as pure Python, and a copy is
# compiled in the background for the next start. STOMPRING_COMPILE=0: it is not.
run: $(VENV)/.installed
	@if $(BIN)/python setup.py --quiet compile --background; then \
		export PYTHONPATH="$(CURDIR)/build/compiled$${PYTHONPATH:+:$$PYTHONPATH}"; fi; \
	exec $(BIN)/stompring run --config $(CONFIG)

compiled: $(VENV)/.installed-compile
	@$(BIN)/python setup.py --quiet compile

# tests/run.py runs them and prints the last line. `suite-PART` uses what is installed.
test: PART := all
test-long: PART := long
test-quick: PART := quick
test-spark: PART := spark
test-compiled: PART := compiled
test test-long test-quick test-spark test-compiled: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory suite-$(PART)

# The rules in memory wait for nothing.
suite-quick: PARALLEL := -n auto --dist loadgroup --no-loadscope-reorder
suite: suite-all
suite-%:
	@$(BIN)/python -m tests.run $* $(PARALLEL) $(PYTEST_OPTIONS)

docs-check: $(VENV)/.installed-test
	$(BIN)/python -m pytest $$(find tests -path 'tests/docs/test_*.py' -o -name 'test_*docs*.py' | sort)

schema: $(VENV)/.installed-test
	$(BIN)/python -m tests.docs.settings_reference

lint types imports: $(VENV)/.installed-check
	@$(MAKE) --no-print-directory check-$@

CONSOLE := tests/console
check-lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml stompring plugins
	$(BIN)/python -m tests.compiled_differences
	@if [ -x $(CONSOLE)/node_modules/.bin/tsc ] && node --version >/dev/null 2>&1; then \
		echo 'tsc --checkJs --strict: the console'; $(CONSOLE)/node_modules/.bin/tsc --project $(CONSOLE)/tsconfig.json; \
	else echo 'not checked: the types of the console (Node.js, and npm ci in $(CONSOLE))'; fi

check-types:
	$(BIN)/mypy --strict -p stompring
	$(BIN)/mypy --strict plugins

check-imports:
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

image:
	@for builder in docker podman buildah; do \
		if $$builder info >/dev/null 2>&1; then echo "$$builder build"; exec $$builder build -f Containerfile -t stompring .; fi; \
	done; \
	echo 'neither docker nor podman nor buildah works on this machine' >&2; exit 1

# From a clean directory: files of an earlier build would get into the wheel.
wheel: $(VENV)/.installed-build
	rm -rf build/lib* build/bdist*
	$(BIN)/python -m build --no-isolation --outdir dist .

# Each Python builds in an environment of its own, with the mypyc of the package index.
PYTHONS = $(BIN)/python
wheels: wheel
	@for python in $(PYTHONS); do \
		rm -rf build/lib* build/bdist*; echo "compiled wheel for $$($$python --version)"; \
		STOMPRING_COMPILE=1 $$python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist . || exit 1; \
	done; ls -l dist

# With the dependencies of the package index. tests/shipping does more, with those of .venv.
package: wheel
	@directory=$$(mktemp -d) && trap 'rm -rf "$$directory"' EXIT && \
	wheel=$$(ls -t $(CURDIR)/dist/*.whl | head -1) && $(BIN)/python -m venv "$$directory/environment" && cd "$$directory" && \
	environment/bin/python -m pip install --disable-pip-version-check --quiet "$$wheel[plugins,ha]" && \
	environment/bin/stompring --version && \
	environment/bin/stompring check-config --data "$$directory" \
		"$$(environment/bin/python -c 'from stompring.settings.machine import shipped_file; print(shipped_file("config", "policies.xml"))')"

# STOMPRING_FUZZ_SECONDS: duration per target. Corpora and findings are in .fuzz.
FUZZ_TARGETS := parser selector broker_xml record json_body texts
fuzz: $(VENV)/.installed-test $(VENV)/.installed-fuzz
	@for target in $(FUZZ_TARGETS); do \
		$(BIN)/python -m tests.fuzz $$target --seconds $${STOMPRING_FUZZ_SECONDS:-600} --corpus .fuzz/$$target --finds .fuzz || exit 1; \
	done

audit: $(VENV)/.installed-check $(VENV)/.installed-audit
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml stompring plugins
	$(BIN)/pip-audit --skip-editable

kills: $(VENV)/.installed-test
	$(BIN)/python -m tests.pipeline.lake.kill_campaign
	STOMPRING_LONG=1 $(BIN)/python -m pytest tests/pipeline/stomp/test_killed.py

format: $(VENV)/.installed-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.whole_broker $(BENCH_OPTIONS)

scaling: $(VENV)/.installed
	$(BIN)/python -m benchmarks.scaling $(BENCH_OPTIONS)

# Needs matplotlib.
bench-docs: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.document

# Environment: FAULTS, SEED, AREAS; see docs/dev/testing.md.
crash: $(VENV)/.installed
	$(BIN)/python -m tests.crash

failover: $(VENV)/.installed-test
	$(BIN)/python -m tests.failover

clean:
	rm -rf $(VENV) .tox build dist site *.egg-info _trial_temp* tests/end_to_end/clients/node_modules $(CONSOLE)/node_modules
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@python=$$($(find_python)); \
	if [ -z "$$python" ]; then \
		echo 'stompring needs Python 3.11 or newer: none found on the PATH.' >&2; \
		echo 'Debian and Ubuntu: apt-get install python3 python3-venv; others: see the Python project'"'"'s downloads.' >&2; \
		exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "$$python cannot create virtual environments: its modules venv and ensurepip are missing." >&2; \
		echo "Debian and Ubuntu: apt-get install python$$version-venv" >&2; \
		exit 1; \
	fi; \
	echo "$$python -m venv $(VENV)"; \
	$$python -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

# The text where there is a C compiler, else nothing. `make test` tests the compiled build there.
comma := ,
with_compiler = $$(for cc in cc gcc clang; do if command -v $$cc >/dev/null; then echo '$(1)'; break; fi; done)

# One stamp file per set of dependencies; it is out of date when setup.cfg or pyproject.toml has changed. Python compiles
# modules at their first import: compiling all of them at the installation takes half a minute.
$(VENV)/.installed: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and its dependencies into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --editable \
		".$(call with_compiler,[compile])"
	@touch $@

# Dependencies of tests and checks together: pip resolves them, and builds this package, only once.
$(VENV)/.installed-all: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and the dependencies of tests and checks into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --quiet --editable '.[test,check,compile]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-check $(VENV)/.installed-build $(VENV)/.installed-docs $(VENV)/.installed-compile

$(VENV)/.installed-%: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and the dependencies of $* into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --quiet --editable \
		".[$*$(if $(filter test,$*),$(call with_compiler,$(comma)compile))]"
	@touch $@ $(VENV)/.installed
