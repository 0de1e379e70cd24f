# What can be done here. All that is needed is make and Python 3.11 or newer; everything else goes into .venv.

SHELL := /bin/sh
# Each of the many processes of the tests would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
# Where the tools are; tox names its own directory here.
BIN := $(VENV)/bin
CONFIG := config/broker.xml
# Most tests wait for brokers that they have started: three at a time take little more than a third of the
# time. tests/conftest.py says which stay together, and which begin.
PARALLEL := -n 3 --dist loadgroup --no-loadscope-reorder

# The newest Python that starts (a name alone proves nothing: version switchers put names there that do not).
find_python = for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done

# The modules that belong to trial are those that import it; pytest runs the others.
trial_files = grep -rlE '^(from|import) twisted\.trial' --include='test_*.py' tests | sort

.PHONY: help run test suite lint types imports docs-check docs-reference bench crash kills fuzz audit format clean check-lint check-types check-imports

help:
	@echo 'make run         start the broker with $(CONFIG) (other file: make run CONFIG=...)'
	@echo 'make test        all tests: trial for those on the reactor, pytest for the rest'
	@echo 'make lint        ruff: mistakes and format; make format mends the format'
	@echo 'make types       mypy --strict'
	@echo 'make imports     import-linter: who may import whom'
	@echo 'make docs-check  the tests that hold the documentation to the code'
	@echo 'make docs-reference  write the reference in docs/plugins.md, the tables in docs/settings.md and schema.xsd'
	@echo 'make bench       our broker beside its peers, where they are installed; needs a C compiler'
	@echo 'make crash       kill the broker under load, 500 times, and count what it promised; see docs/testing.md'
	@echo 'make kills       kill Spark and the broker, 20 times each, and count what is in the lake and in a replay'
	@echo 'make fuzz        what strangers send, changed at random where it opens new ways through the code; 10 minutes a target'
	@echo 'make audit       bandit over the package, pip-audit over what is installed (asks a service on the network)'
	@echo 'make clean       remove what tools have made, .venv included'

run: $(VENV)/.installed
	@exec $(BIN)/stompring run --config $(CONFIG)

test: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory suite

# With the tools that are there already. Both runners run, whichever fails, and what trial says comes when pytest is done.
suite:
	@files=$$($(trial_files)); status=0; said=$$(mktemp); \
	modules=$$(echo "$$files" | sed 's|/|.|g; s|\.py$$||'); \
	$(BIN)/python -m twisted.trial $$modules >"$$said" 2>&1 & trial=$$!; \
	$(BIN)/python -m pytest $(PARALLEL) --durations=20 $$(for file in $$files; do echo "--ignore=$$file"; done) $(PYTEST_OPTIONS) || status=1; \
	wait $$trial || status=1; cat "$$said"; rm -f "$$said"; \
	exit $$status

docs-check: $(VENV)/.installed-test
	$(BIN)/python -m pytest $$(find tests -path 'tests/docs/test_*.py' -o -name 'test_*docs*.py' | sort)

docs-reference: $(VENV)/.installed-test
	$(BIN)/python -m tests.docs.policy_reference
	$(BIN)/python -m tests.docs.settings_reference

lint types imports: $(VENV)/.installed-check
	@$(MAKE) --no-print-directory check-$@

check-lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml stompring plugins

check-types:
	$(BIN)/mypy --strict -p stompring
	$(BIN)/mypy --strict plugins

check-imports:
	$(BIN)/lint-imports

# STOMPRING_FUZZ_SECONDS: how long each target gets; what is found worth keeping is in .fuzz.
FUZZ_TARGETS := parser selector broker_xml record json_body texts
fuzz: $(VENV)/.installed-test $(VENV)/.installed-fuzz
	@for target in $(FUZZ_TARGETS); do \
		$(BIN)/python -m tests.fuzz $$target --seconds $${STOMPRING_FUZZ_SECONDS:-600} --corpus .fuzz/$$target --finds .fuzz || exit 1; \
	done

audit: $(VENV)/.installed-check $(VENV)/.installed-audit
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml stompring plugins
	$(BIN)/pip-audit --skip-editable

kills: $(VENV)/.installed-test
	$(BIN)/python -m tests.pipeline.lake.kill_campaign $(KILLS_OPTIONS)
	STOMPRING_LONG=1 $(BIN)/python -m pytest tests/pipeline/stomp/test_killed.py

format: $(VENV)/.installed-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.whole_broker $(BENCH_OPTIONS)

# STOMPRING_KILLS, STOMPRING_SEED and STOMPRING_AREAS choose other numbers; docs/testing.md.
crash: $(VENV)/.installed
	$(BIN)/python -m tests.crash

clean:
	rm -rf $(VENV) .tox build dist *.egg-info _trial_temp* tests/end_to_end/clients/node_modules
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@python=$$($(find_python)); \
	if [ -z "$$python" ]; then \
		echo 'stompring needs Python 3.11 or newer, and none is on the PATH.' >&2; \
		echo 'Debian and Ubuntu: apt-get install python3 python3-venv; others: see the Python project'"'"'s downloads.' >&2; \
		exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "$$python cannot make virtual environments: its modules venv and ensurepip are missing." >&2; \
		echo "Debian and Ubuntu: apt-get install python$$version-venv" >&2; \
		exit 1; \
	fi; \
	echo "$$python -m venv $(VENV)"; \
	$$python -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

# One stamp for each set of dependencies, older than the files that name them when those have changed. What the tools
# import is compiled then; all that they bring would take half a minute.
$(VENV)/.installed: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and what it needs into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --editable .
	@touch $@

# For the tests and the checks at once: pip looks for what fits together, and builds this package, once.
$(VENV)/.installed-all: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and what tests and checks need into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --quiet --editable '.[test,check]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-check

$(VENV)/.installed-%: setup.cfg pyproject.toml | $(VENV)/bin/python
	@echo 'installing stompring and what $* needs into $(VENV)'
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile --quiet --editable '.[$*]'
	@touch $@ $(VENV)/.installed
