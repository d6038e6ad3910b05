# The ways to run, test and check cloudgpu. Needs Python 3.11 or newer, git and make; everything else comes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q
SHARED = $(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder
WORKERS ?= 4  # of two cores: six wait for each other, and take a third more processor time
CHECKED := tests/test_imports.py tests/test_house.py tests/test_walks.py tests/test_packaging.py tests/docs

.DEFAULT_GOAL := help
.PHONY: help demo demo-cluster test lowest soak check bench clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 \2/p' Makefile | awk '{ printf "  %s %-12s", $$1, $$2; $$1 = $$2 = ""; print }'

# All that it makes stands under .demo. Machines that a killed run left are ended first; if one cannot be, .demo stays.
# A signal is passed on to the demo, which ends its machine; where the terminal was closed, nothing more is printed.
SWEEP = trap "" HUP TERM; for found in .demo/*/ledger; do [ ! -e "$$found" ] || \
	CLOUDGPU_HOME="$$PWD/$${found%/ledger}" $(BIN)/cloudgpu down --all --yes || exit 9; done; rm -rf .demo
demo: $(VENV)/.demo-installed ## launch a local machine, run a notebook cell, show the cost, leave nothing
	@unset CLOUDGPU_LEDGER; ($(SWEEP)) || exit; mkdir .demo; \
	over() { trap "" HUP INT TERM; kill -TERM $$demo; wait $$demo; exit $$1; }; \
	trap '$(SWEEP)' EXIT; trap 'over 130' INT; trap 'over 143' TERM; trap 'exec >/dev/null 2>&1; over 129' HUP; \
	CLOUDGPU_HOME="$$PWD/.demo/home" TMPDIR="$$PWD/.demo" $(BIN)/cloudgpu demo & demo=$$!; wait $$demo

# The same as for the demo: what a killed run left is ended first, and a signal is passed on.
demo-cluster: $(VENV)/.demo-installed ## four local machines as one cluster with Slurm, a job on all of them, leave nothing
	@unset CLOUDGPU_LEDGER; ($(SWEEP)) || exit; mkdir .demo; \
	over() { trap "" HUP INT TERM; kill -TERM $$demo; wait $$demo; exit $$1; }; \
	trap '$(SWEEP)' EXIT; trap 'over 130' INT; trap 'over 143' TERM; trap 'exec >/dev/null 2>&1; over 129' HUP; \
	CLOUDGPU_HOME="$$PWD/.demo/home" TMPDIR="$$PWD/.demo" PATH="$$PWD/$(BIN):$$PATH" sh examples/cluster/demo.sh & \
	demo=$$!; wait $$demo

test: $(VENV)/.test-compiled $(VENV)/.focus-installed ## the test suite, without the long runs and what check runs
	@$(SHARED) $(addprefix --ignore ,$(CHECKED))

# What each package is used for, once: a machine's whole life here and the first of each cloud, boot data, jobs, mail.
LOWEST = tests/cli/test_life.py::test_a_machine_lives_from_up_to_down \
	tests/cli/machines/test_templates.py::test_what_a_template_installs_is_the_machines_own_and_goes_with_it \
	tests/cli/machines/test_up_aws.py::test_the_headline_command_needs_no_settings \
	tests/cli/machines/test_up_gcp.py::test_the_headline_command_needs_no_settings \
	tests/cli/machines/test_up_azure.py::test_the_headline_command_needs_no_settings_and_down_leaves_nothing_at_all \
	tests/config/templates/test_shipped_templates.py tests/config/test_edit.py \
	tests/control/scheduler/test_watch_scheduler.py tests/control/cost/test_report_delivery.py \
	tests/access/ssh/test_connection.py tests/cli/test_hot_path.py tests/ledger/log/test_postgres_clients.py
lowest: $(VENV)/.lowest-installed ## the lowest versions that pyproject.toml allows, with a part of the test suite
	@$(VENV)/lowest/bin/python tests/lowest.py
	@$(VENV)/lowest/bin/python docs/check.py
	@$(VENV)/lowest/bin/python -m pytest -q -m "" -n $(WORKERS) $(LOWEST)

soak: $(VENV)/.test-compiled ## the long runs: crashes at every call, hundreds of kills, more examples
	@CLOUDGPU_EXAMPLES=1 $(SHARED) -m 'soak or hypothesis' --timeout 2400 --durations 5

check: $(VENV)/.check-installed ## format, lint, types, import rules, packaging, docs and their prose
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(SHARED) $(CHECKED)
	@if [ -e docs/check.py ]; then $(BIN)/python docs/check.py && $(BIN)/python docs/prose.py --check; fi

bench: $(VENV)/.test-installed ## measure speed against import typer, ssh -L and the same by hand
	@$(BIN)/python benchmarks/run.py

clean: ## remove what the others made
	@rm -rf $(VENV) .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What a stamp stands for is what pyproject.toml asked for when it was made.
$(VENV)/.demo-installed: EXTRAS := local
$(VENV)/.test-installed: EXTRAS := all,test
$(VENV)/.check-installed: EXTRAS := all,test,dev
$(VENV)/.%-installed: pyproject.toml $(BIN)/python
	@echo "Installing cloudgpu[$(EXTRAS)] into $(VENV); the first time takes a minute or two ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# Each worker would compile every test module for itself. The first time, two processes do it for all of them.
$(VENV)/.test-compiled: $(VENV)/.test-installed
	@$(PYTEST) --collect-only $(FIRST_HALF) >/dev/null 2>&1 & \
	$(PYTEST) --collect-only $(addprefix --ignore ,$(FIRST_HALF)) >/dev/null 2>&1; wait; touch $@
FIRST_HALF := tests/cli tests/control

# Only what cloudgpu runs with is as old as it may be: the second line leaves that as it is, and adds what tests need.
$(VENV)/.lowest-installed: pyproject.toml $(BIN)/python
	@echo "Installing the lowest versions that are allowed into $(VENV)/lowest ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/lowest
	@$(LOWEST_PIP) --resolution lowest-direct --editable '.[all]'
	@$(LOWEST_PIP) --editable '.[all,test]'
	@touch $@
LOWEST_PIP = $(BIN)/uv pip install --quiet --python $(VENV)/lowest/bin/python

# The FinOps Foundation's validator has an environment of its own: it wants older libraries, and no Python after 3.12.
# Where there is none, its tests are skipped, and the next run looks again.
$(VENV)/.focus-installed: tests/views/validator.txt $(BIN)/python
	@for python in $(BIN)/python python3.12 python3.11; do \
		"$$python" -c '$(OLD_ENOUGH)' 2>/dev/null || continue; \
		echo "Installing focus-validator into $(VENV)/focus; the first time takes a minute ..."; \
		"$$python" -m venv --clear $(VENV)/focus && $(VENV)/focus/bin/python -m pip install \
			-qq --disable-pip-version-check -r tests/views/validator.txt && touch $@; exit; \
	done; echo "No Python 3.11 or 3.12 with venv here for focus-validator: what it would judge is skipped."
OLD_ENOUGH := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))

# A virtual environment names its own place: one that was moved or copied, or was never finished, is made anew.
ifneq ($(shell cat $(VENV)/.made-in 2>/dev/null),$(CURDIR))
.PHONY: $(BIN)/python
endif

# $(error) ends make with this one line and status 2.
$(BIN)/python:
	@$(if $(MISSING),$(error $(MISSING)))
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "$(CURDIR)" > $(VENV)/.made-in

LOOK := import sys; from importlib.util import find_spec as find; v = "%d.%d" % sys.version_info[:2]; \
	print("is Python " + v + "; install a newer one, or name one: make PYTHON=python3.12" \
	if sys.version_info < (3, 11) else "has no venv; install it: apt-get install python" + v + "-venv" \
	if not find("venv") or not find("ensurepip") else "")
UNUSABLE := cannot be used; install one: apt-get install python3 python3-venv
FOUND = $(shell $(PYTHON) -c '$(LOOK)' 2>/dev/null || echo '$(UNUSABLE)')
MISSING = $(if $(FOUND),cloudgpu needs Python 3.11 or newer with venv: $(PYTHON) $(FOUND))
