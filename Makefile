# Everything runs in .venv, which each target creates if necessary: the machine needs only
# Python ≥ 3.11 and make. To use another interpreter: make PYTHON=/path/to/python3 …
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
STAMP := .venv/.complete
SPARK_STAMP := .venv/.spark-complete
PYTHON ?=
ARGS ?=
SPARK ?=
IMAGES ?= hermes-actors hermes-spark

define find_python
found=""; \
for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14); do \
    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
        found="$$candidate"; break; \
    fi; \
done; \
if [ -z "$$found" ]; then \
    echo "make: no Python 3.11 or newer (with venv) was found; install one, or name it: make PYTHON=/path/to/python3" >&2; \
    exit 1; \
fi
endef

.PHONY: help
help: ## Print what each target does
	@grep -E '^[a-z.-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z.-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

.PHONY: .venv
.venv: $(STAMP) ## Create the environment from requirements.lock, with checked hashes

$(STAMP): requirements.lock pyproject.toml client/pyproject.toml
	@$(find_python); echo "make: .venv with $$("$$found" --version)"; "$$found" -m venv .venv
	@echo "make: $$(grep -c == requirements.lock) packages of requirements.lock, hashes checked (about a minute, 320 MB) …"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock \
	    | sed -un 's/^Collecting \([^ ]*\).*/  \1/p; s/^Installing.*/make: unpacking them …/p'
	@echo "make: hermes_actors itself, and its client …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e client
	@touch $@

# PySpark comes as sources only; its build requirements are locked too, and nothing else is fetched.
.PHONY: spark
spark: $(SPARK_STAMP) ## Create the environment with the extra [spark]; needs Java 17

$(SPARK_STAMP): $(STAMP) spark/requirements.lock spark/build.lock
	@echo "make: PySpark and what it needs, hashes checked (some minutes, 1.2 GB) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r spark/build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r spark/requirements.lock
	@touch $@

# With Java and Maven the demos end with Spark's reconciliation; else they print what is missing.
.PHONY: spark-if-java
spark-if-java: $(STAMP)
	@if [ "$(SPARK)" != no ] && [ ! -e $(SPARK_STAMP) ] && command -v java >/dev/null && command -v mvn >/dev/null; then \
	    $(MAKE) --no-print-directory spark || echo "make: the demo goes on without the extra [spark]"; \
	fi

.PHONY: demo
demo: spark-if-java ## Run the flights demo; ARGS="…" is passed on
	@$(BIN)/python examples/flights/demo.py $(ARGS)

.PHONY: demo-kafka
demo-kafka: spark-if-java ## Run it with two Kafka clusters and ten node processes
	@$(BIN)/python examples/flights/demo.py --compose deploy/compose.yaml $(ARGS)

# The number of examples of property tests (tests/conftest.py); `make test` tries all.
export HYPOTHESIS_PROFILE ?= check
test: HYPOTHESIS_PROFILE = full

# Otherwise every test process would compile all test modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: metrics
metrics: $(STAMP) ## Write the tables of docs/metrics.md from the source
	@{ sed '/^## /,$$d' docs/metrics.md; $(BIN)/python -c 'from hermes_actors.node.measures import tables; print(tables())'; } > docs/metrics.new
	@mv docs/metrics.new docs/metrics.md

.PHONY: values
values: $(STAMP) ## Write the nodes' settings into the schema of the Helm chart's values
	@$(BIN)/python deploy/helm/settings.py

.PHONY: graphql
graphql: $(STAMP) ## Write the schema of GraphQL from the source
	@$(BIN)/python -c 'from hermes_actors.management.graphql.schema import schema; print(schema().as_str())' > schema.new
	@mv schema.new hermes_actors/management/graphql/schema.graphql

.PHONY: proto
proto: $(STAMP) ## Write the packaged gRPC stubs from proto/
	@$(BIN)/python proto/generate.py

.PHONY: check
check: $(STAMP) ## Check format, lint, types and layers, and run the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n auto -m "not kafka and not spark and not live and not slow and not soak"

# pytest exits with 5 if a selection is empty, which is not a failure here.
# The tests of the console's pages drive an installed browser.
.PHONY: chromium
chromium: ## Install Chromium for the console's tests, if this is Debian and you are root
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "make: installing Debian's chromium …"; \
	    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium; } >/dev/null 2>&1 \
	        || echo "make: chromium could not be installed: the console's browser tests are skipped"; \
	else echo "make: there is no chromium: the console's browser tests are skipped"; fi

.PHONY: test
test: chromium check $(SPARK_STAMP) ## Run check, and all other tests: real processes, slow ones, Kafka, Spark
	@# Three groups run concurrently. Tests with real processes mostly wait, so three files run at a time.
	@# Spark tests share one session. Slow tests, mostly simulations in virtual time, have a low priority.
	@# A failure stops no group. A test that ends its worker process (as a hang does at its time limit) does
	@# not stop its group either, as long as restarts are left.
	@failed=0; run() { $(BIN)/python -m pytest --max-worker-restart 2 "$$@" || [ $$? -eq 5 ] || failed=1; }; \
	spark="$$(mktemp)"; (run -n 1 -m "spark and not soak"; exit $$failed) > "$$spark" 2>&1 & beside=$$!; \
	slow="$$(mktemp)"; (renice -n 10 $$BASHPID > /dev/null; \
	    run -n auto -m "slow and not (kafka or spark or live or soak)"; exit $$failed) > "$$slow" 2>&1 & behind=$$!; \
	run -n 3 --dist loadfile --no-loadscope-reorder -m "(live or kafka) and not (spark or soak)"; \
	wait $$beside || failed=1; wait $$behind || failed=1; cat "$$spark" "$$slow"; rm "$$spark" "$$slow"; \
	exit $$failed

SEEDS ?= 1:300
.PHONY: soak
soak: $(SPARK_STAMP) ## Run long tests: soaks, the compose file, benchmarks, SEEDS=1:300 of the simulation
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n 1 -m soak
	$(BIN)/hermes chaos sim --seeds $(SEEDS)

.PHONY: kube-check
kube-check: $(STAMP) ## Install the Helm chart into a Kubernetes API server; Go builds it first, once
	$(BIN)/python -m pytest -m soak tests/kubernetes

.PHONY: bench
bench: $(SPARK_STAMP) ## Run the benchmarks, one after another
	@for name in actors append publish over_grpc hedging deliver failover balancer filters schemas telemetry fsyncs spool idle_subscriptions stalled_partition sizing spark; do \
	    if [ -f "benchmarks/$$name.py" ]; then echo "== benchmarks/$$name.py"; $(BIN)/python "benchmarks/$$name.py"; fi; \
	done

.PHONY: lock
lock: ## Resolve the dependencies again into requirements.lock
	@if [ ! -x $(BIN)/python ]; then $(find_python); "$$found" -m venv .venv; fi
	@if [ ! -x $(BIN)/uv ]; then $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; fi
	@$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate --extra dev --output-file requirements.lock
	@# Further locks: for the image, for the build of its wheel, and for Spark.
	@pins="$$(mktemp)"; trap 'rm -f "$$pins"' EXIT; \
	sed -n 's/^\([a-zA-Z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock > "$$pins"; \
	compile="$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate --constraint $$pins"; \
	$$compile pyproject.toml --output-file deploy/requirements.lock; \
	echo hatchling | $$compile - --output-file deploy/build.lock; \
	$$compile pyproject.toml --extra spark --output-file spark/requirements.lock; \
	echo 'setuptools<81' | $$compile - --output-file spark/build.lock

.PHONY: images
images: ## Build the images of a node and of Spark, with Docker, Podman or Buildah; ARGS="…" is passed on
	@version="$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"; \
	if docker info >/dev/null 2>&1; then build=(docker build); \
	elif podman info >/dev/null 2>&1; then build=(podman build --format docker); \
	elif command -v buildah >/dev/null; then build=(buildah build --format docker); \
	else \
	    if command -v docker >/dev/null; then echo "make: docker is installed, but its daemon does not answer" >&2; fi; \
	    echo "make: no image was built: start Docker's daemon, or install Podman or Buildah" >&2; exit 1; \
	fi; \
	for image in $(IMAGES); do \
	    file=deploy/Dockerfile; if [ "$$image" = hermes-spark ]; then file=deploy/spark/Dockerfile; fi; \
	    echo "make: $$image:$$version with $${build[0]} …"; \
	    "$${build[@]}" --file "$$file" --tag "$$image:$$version" $(ARGS) .; \
	done

.PHONY: sbom
sbom: $(STAMP) ## Write the bill of materials of a node's image, as CycloneDX JSON
	@$(BIN)/python deploy/sbom.py build/hermes-actors.cdx.json

.PHONY: clean
clean: ## Remove the environment and everything that was generated
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -maxdepth 2 -name '*.egg-info' -type d -prune -exec rm -rf {} +
