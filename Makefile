# make demo: explore procedural rooms with the included model.  make test: all tests.  make check: style and types.
# A new .venv gets the versions of constraints.txt; CONSTRAINTS= make demo gives it the newest. make clean removes .venv.
PY := .venv/bin/python

.PHONY: demo test check format constraints clean

demo: .venv/installed
	$(PY) render_point_cloud_qwen_angle_batched.py --demo

test: .venv/installed-dev
	$(PY) -m pytest -q

check: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

constraints: .venv/installed-dev
	sh scripts/freeze.sh

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: requirements.txt constraints.txt scripts/install.sh
	sh scripts/install.sh requirements.txt
	touch $@

.venv/installed-dev: requirements.txt requirements-dev.txt constraints.txt scripts/install.sh
	sh scripts/install.sh requirements-dev.txt
	touch $@ .venv/installed
