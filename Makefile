# make demo: the main job on rooms made on the spot and the small model that ships.  make test: all tests.  make test-ray: those on a Ray cluster of this machine.  make check: style and types.
PY := .venv/bin/python

.PHONY: demo test test-ray check format clean

demo: .venv/installed
	$(PY) render_point_cloud_qwen_angle_batched.py --demo

test: .venv/installed-dev
	$(PY) -m pytest -q

test-ray: .venv/installed-ray
	$(PY) -m pytest -q -m ray

check: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: requirements.txt scripts/install.sh
	sh scripts/install.sh requirements.txt
	touch $@

.venv/installed-dev: requirements.txt requirements-dev.txt scripts/install.sh
	sh scripts/install.sh requirements-dev.txt
	touch $@ .venv/installed

.venv/installed-ray: requirements-ray.txt .venv/installed-dev
	sh scripts/install.sh requirements-ray.txt
	touch $@
