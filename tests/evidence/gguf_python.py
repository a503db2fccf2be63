"""Opens files of ours with Python's gguf package and compares every tensor, bit for bit, with the floats that we read from them.

    cargo test --release --test formats files_for_python && python tests/evidence/gguf_python.py target/tmp/gguf_python

Last run: gguf 0.19.0, numpy 2.4.6: 10 files, 370 tensors, all equal.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

n_files = n_tensors = 0
for path in sorted(Path(sys.argv[1]).glob("*.gguf")):
    reader = gguf.GGUFReader(path)
    floats = load_file(path.with_suffix(".safetensors"))
    field = lambda key: reader.get_field(key).contents()
    assert field("general.architecture") == "fox"
    assert field("fox.embedding_length") == 256 and field("fox.use_k_shift") is True
    assert field("fox.attention.layer_norm_rms_epsilon") == np.float32(1e-6)
    assert {tensor.name for tensor in reader.tensors} == set(floats)
    for tensor in reader.tensors:
        got = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        want = floats[tensor.name]
        assert list(tensor.shape[::-1]) == list(want.shape), tensor.name
        assert np.array_equal(got.reshape(want.shape).view(np.uint32), want.view(np.uint32)), tensor.name
        n_tensors += 1
    n_files += 1
    print(path.name, field("general.file_type"), sorted({tensor.tensor_type.name for tensor in reader.tensors}))
print(f"gguf and numpy {np.__version__}: {n_files} files, {n_tensors} tensors, all equal")
assert n_files == 10
