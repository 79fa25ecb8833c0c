"""Makes a safetensors file of so many bytes, or loads all of its tensors when the page cache does not have them.

It prints how long it took until they were there, and until each byte was read, as JSON, and a checksum.
"""

import json
import mmap
import os
import sys
import time

import numpy

path, size, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LAYERS = 32
TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1"}


def make():
    import safetensors.numpy

    rows = size // LAYERS // 4 // 1024
    columns = numpy.arange(1024, dtype="float32")
    tensors = {}
    for layer in range(LAYERS):
        first = numpy.arange(rows, dtype="float32") % 977 + layer
        tensors[f"layer.{layer}"] = first[:, None] * columns
    safetensors.numpy.save_file(tensors, path)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def views(memory):
    """The tensors of a file that is in memory, by its header."""
    length = int.from_bytes(memory[:8], "little")
    start = 8 + length
    for name, about in json.loads(bytes(memory[8:start])).items():
        if name != "__metadata__":
            first, end = about["data_offsets"]
            array = numpy.frombuffer(memory[start + first : start + end], dtype=TYPES[about["dtype"]])
            yield name, array.reshape(about["shape"])


def by_safetensors():
    import safetensors.numpy

    return lambda: safetensors.numpy.load_file(path).items()


def by_madvise():
    load = by_safetensors()

    def run():
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            mapping.madvise(mmap.MADV_WILLNEED)
            return load()

    return run


def by_fadvise():
    load = by_safetensors()

    def run():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            return load()

    return run


def by_map():
    import faultless

    file = faultless.open(path)
    return lambda: views(memoryview(file.map()))


def by_prefetch():
    import faultless

    file = faultless.open(path)

    def run():
        file.prefetch([(0, len(file))])
        return views(memoryview(file.map(lazy=True)))

    return run


def by_fastsafetensors():
    import fastsafetensors
    import fastsafetensors.frameworks._torch  # PyTorch, before the time begins

    def run():
        loader = fastsafetensors.SafeTensorsFileLoader(None, "cpu", nogds=True)
        loader.add_filenames({0: [path]})
        memory = loader.copy_files_to_device()
        return ((name, memory.get_tensor(name).numpy()) for name in list(loader.get_keys()))

    return run


def by_runai():
    import runai_model_streamer

    def run():
        with runai_model_streamer.SafetensorsStreamer() as streamer:
            streamer.stream_file(path)
            for name, tensor in streamer.get_tensors():
                yield name, tensor.numpy()

    return run


WAYS = {
    "plain": by_safetensors,
    "madvise": by_madvise,
    "fadvise": by_fadvise,
    "files": by_safetensors,
    "map": by_map,
    "prefetch": by_prefetch,
    "fastsafetensors": by_fastsafetensors,
    "runai": by_runai,
}


def main():
    if way == "make":
        return make()
    load = WAYS[way]()
    # Those that come beside the program are on their way already.
    if way != "files":
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    start = time.perf_counter()
    tensors = dict(load())
    loaded = time.perf_counter() - start
    sums = {name: int(array.reshape(-1).view("u4").sum(dtype="u8")) for name, array in tensors.items()}
    read = time.perf_counter() - start
    shapes = {name: list(array.shape) for name, array in tensors.items()}
    print(json.dumps([{"test": "loaded", "seconds": loaded}, {"test": "read", "seconds": read}]))
    print(json.dumps(sorted((name, shapes[name], total) for name, total in sums.items())))


main()
