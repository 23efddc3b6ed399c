# make demo: the main job on rooms made on the spot and the small model that ships.  make test: all tests.  make check: style and types.
PY := .venv/bin/python

.PHONY: demo test test-vllm check format clean

demo: .venv/installed
	$(PY) render_point_cloud_qwen_angle_batched.py --demo

test: .venv/installed-dev
	$(PY) -m pytest -q

# Minutes: vLLM takes one to start. VLLM_PYTHON names an environment that is there.
VLLM_PYTHON ?= $(CURDIR)/.venv-vllm/bin/python
test-vllm: .venv/installed-dev $(VLLM_PYTHON)
	VLLM_PYTHON=$(VLLM_PYTHON) $(PY) -m pytest -q tests/test_vllm.py

check: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .venv-vllm .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: requirements.txt scripts/install.sh
	sh scripts/install.sh requirements.txt
	touch $@

.venv/installed-dev: requirements.txt requirements-dev.txt scripts/install.sh
	sh scripts/install.sh requirements-dev.txt
	touch $@ .venv/installed

$(CURDIR)/.venv-vllm/bin/python:
	sh scripts/install_vllm.sh
