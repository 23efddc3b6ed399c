# make demo: explore procedural rooms with the included model.  make check: style and types.
# make test: all tests but the slow ones, in WORKERS (3) processes.  make test-slow: the slow ones.  make test-all: both.
# make test-ray: tests on a Ray cluster of this machine.  make test-vllm: tests with vLLM in its own environment.
# make docs: the documentation as a site, in site/; fails for a broken link or a page outside the menu.
# make dist: sdist and wheel, in dist/.
# make test-faces: tests with OpenEnv, verifiers, VAGEN and verl in environments of their own.
# A new .venv gets the versions of constraints.txt; CONSTRAINTS= make demo gives it the newest. make clean removes .venv.
PY := .venv/bin/python
WORKERS ?= 3
# One thread per process: with more threads than cores, the tests' small models become 5 to 10 times slower.
# Containers often forbid bytecode files; without them, each of the tests' processes compiles all that it imports.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q -n $(WORKERS) --dist worksteal

.PHONY: demo test test-slow test-all test-ray test-vllm test-faces check format docs dist constraints clean

demo: .venv/installed
	$(PY) render_point_cloud_qwen_angle_batched.py --demo

test: .venv/installed-dev
	$(PYTEST)

test-slow: .venv/installed-dev
	$(PYTEST) -m "slow and not ray"

test-all: .venv/installed-dev
	$(PYTEST) -m "not ray"

test-ray: .venv/installed-ray
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q -m ray

# Takes minutes: vLLM needs one to start. VLLM_PYTHON names an existing environment with vLLM.
test-vllm: .venv/installed-dev $(if $(VLLM_PYTHON),,.venv-vllm/installed)
	VLLM_PYTHON=$(or $(VLLM_PYTHON),$(CURDIR)/.venv-vllm/bin/python) $(PY) -m pytest -q tests/models/test_vllm.py

# FACES_VENVS names an existing folder of these environments.
test-faces: .venv/installed-dev $(if $(FACES_VENVS),,.venv-faces/installed)
	FACES_VENVS=$(or $(FACES_VENVS),$(CURDIR)/.venv-faces) $(PY) -m pytest -q tests/examples

check: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

dist: .venv/installed-dev
	$(PY) -m build

constraints: .venv/installed-dev
	sh scripts/freeze.sh

clean:
	rm -rf .venv .venv-vllm .venv-faces build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: requirements.txt pyproject.toml constraints.txt scripts/install.sh
	sh scripts/install.sh requirements.txt
	touch $@

.venv/installed-dev: requirements-dev.txt pyproject.toml constraints.txt scripts/install.sh
	sh scripts/install.sh requirements-dev.txt
	touch $@ .venv/installed

.venv/installed-ray: requirements-ray.txt .venv/installed-dev
	sh scripts/install.sh requirements-ray.txt
	touch $@

.venv/installed-docs: requirements-docs.txt pyproject.toml
	sh scripts/install.sh requirements-docs.txt
	touch $@

.venv-vllm/installed: scripts/install_vllm.sh
	sh scripts/install_vllm.sh
	touch $@

.venv-faces/installed: scripts/install_faces.sh
	sh scripts/install_faces.sh
	touch $@
