# Benchmarks, and tables of documents. Most compile with PyTorch the first time.

## bench  benchmarks: a table, build/bench.json, plots (twenty minutes); QUICK=1: five minutes, with less, and it says what it left out; BENCHES="index kernel": those; BENCH_PLOTS=docs/images: plots of docs/performance.md
BENCHES     ?=
BENCH_PLOTS ?= $(BUILD)
QUICK       ?=
bench: all $(BENCH_PROGRAMS)
	$(Q)BUILD=$(BUILD) VENV=$(VENV) BENCHES='$(BENCHES)' QUICK='$(QUICK)' BENCH_PLOTS=$(BENCH_PLOTS) scripts/bench

## bench-compile  torch.compile as on a fresh machine, compared with PyTorch's own caches (half an hour)
bench-compile: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/bench/compile_table.py $(PROGRAMS)

## bench-judge  what a call costs after the speed trials of kernels, compared with plain PyTorch (minutes)
bench-judge: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/judge_table.py

## bench-models-eager  whole programs in eager PyTorch, plain and with enable("safe") (minutes)
bench-models-eager: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/bench_models_eager.py

## bench-models  starts of whole models until the first output, compared with dlopen and aoti_load_package (minutes)
bench-models: all $(BUILD)/tests/bench/open_model
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/bench_models.py

## operators  run the 702 operators of PyTorch's test database on the shim, docs/results/operators.md (an hour)
operators: all $(BUILD)/tests/helpers/run_library
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/operators/operator_table.py

## models  time thirty models without PyTorch, compared with PyTorch and ONNX Runtime, docs/results/models.md (half an hour)
# PYTHONPATH may name directories with transformers, torchvision, onnx, onnxscript, onnxruntime. MODELS: only these, as
# MODELS="'ResNet-18' ViT", or options of the script: --resume, --write.
MODELS ?=
models: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/model_times.py $(MODELS)

## model-results  whether thirty models run in float32, bfloat16 and with a free batch, docs/results/models.md (half an hour)
model-results: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models/models.py --write
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models/models.py --bfloat16 --write
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models/models.py --free-batch --write

## torch-operators  which operators the PyTorch binding serves, and why not the others, docs/results/torch-operators.md
torch-operators: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/operators/torch_operator_table.py

## torch-checks  compiled kernels against PyTorch at the edges of operators, docs/results/torch-checks.md (most of an hour)
torch-checks: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/operators/torch_checks.py table

## inductor-builds  every operator of PyTorch's database built our way and PyTorch's, compared bit for bit (most of an hour)
inductor-builds: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/worker/inductor_builds.py --json $(BUILD)/inductor-builds.json

## year  a simulated year of a cache of 100,000 keys, compared with plain LRU and Belady's rule (minutes)
year: all tests
	$(Q)KEYS=100000 REQUESTS=1000000 BUILD=$(BUILD) bash tests/cli/gc/test_year.sh
