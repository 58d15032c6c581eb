"""Tests packages that PyTorch made, loaded through the cache: results are those of torch._inductor.aoti_load_package, in a
process with PyTorch and in one without; the second load changes no file; damaged packages are refused.
"""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import zipfile

import pytest
import torch
import torch._inductor.package

import package_host
import package_models

TOOL = os.path.join(package_models.BUILD, "bin", "aoticache")


def check(name, holds, detail=""):
    assert holds, f"{name}: {detail}"


def trace(subdirectory):
    """Returns every file and directory below, with inode, size and times of change; the index is left out, since counters
    write to it."""
    found = {}
    for path, directories, files in os.walk(subdirectory):
        for name in directories + files:
            status = os.lstat(os.path.join(path, name))
            if not name.startswith("index.sqlite3"):
                found[os.path.join(path, name)] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_nlink)
    return found


def theirs(path, model, tensors):
    runner = torch._inductor.package.load_package(path, model)  # aoti_load_package, for any name of a model
    results = []
    for tensor in tensors:
        output = runner(tensor.clone())
        results.append([o.flatten().tolist() for o in (output if isinstance(output, (tuple, list)) else (output,))])
    return results


def tool(directory, *words):
    done = subprocess.run([TOOL, *words, "--cache-dir", directory], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def alone(directory, path, model, tensors, work):
    """Runs the package with the tool, which never loads PyTorch; one run for each tensor in a new process."""
    results = []
    for tensor in tensors:
        file = os.path.join(work, "input.bin")
        tensor.numpy().tofile(file)
        sizes = "x".join(str(size) for size in tensor.shape)
        code, out, err = tool(directory, "run-package", path, "--model", model, "--input", f"float32:{sizes}=@{file}",
                              "--json", "--all-values")
        results.append([o["values"] for o in json.loads(out)["outputs"]] if code == 0 else err)
    return results


def near(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return False
    return all(len(x) == len(y) and all(abs(p - q) <= 1e-4 * (1 + abs(q)) for p, q in zip(x, y)) for x, y in zip(a, b))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Returns the cache of these tests."""
    return str(tmp_path_factory.mktemp("packages") / "cache")


@pytest.fixture
def work(tmp_path):
    return str(tmp_path)


@pytest.fixture(scope="module")
def embedded():
    return package_models.package("embedded")


@pytest.mark.parametrize("name, model, sizes", [
    pytest.param("embedded", "model", [(3, 64), (77, 64)], marks=pytest.mark.quick), ("pickled", "model", [(5, 64)]), ("blob", "model", [(1000,)] * 3),
    ("several", "twice", [(8,)]), ("several", "thrice", [(8,)])])
def test_package(name, model, sizes, directory, work):
    label, path, tensors = f"{name} {model}", package_models.package(name), [numbers(*size) for size in sizes]
    expected = theirs(path, model, tensors)
    host = package_host.Host(directory)
    first, report = host.load(path, model)
    check(f"{label}: the first load adds it", report.added and report.stored and report.add_ns > 0)
    ours = [host.run(first, t.data_ptr(), list(t.shape)) for t in tensors]
    check(f"{label}: results beside PyTorch are PyTorch's to the bit", ours == expected, f"{ours} {expected}"[:500])
    before = trace(directory)
    second, again = host.load(path, model)
    ours = [host.run(second, t.data_ptr(), list(t.shape)) for t in tensors]
    check(f"{label}: the second load unpacks nothing",
          not again.added and again.add_ns == 0 and again.bytes == report.bytes)
    check(f"{label}: its results are the same", ours == expected)
    check(f"{label}: it touches no file", trace(directory) == before and not os.listdir(os.path.join(directory, "tmp")))
    host.unload(first)
    host.unload(second)
    host.close()
    fresh = [theirs(path, model, [t])[0] for t in tensors]
    got = alone(directory, path, model, tensors, work)
    check(f"{label}: results without PyTorch are near", all(map(near, got, fresh)), f"{got} {fresh}"[:800])


def test_two_processes(embedded, work):
    path, directory = embedded, os.path.join(work, "cache")
    both = [subprocess.Popen([TOOL, "add", path, "--json", "--cache-dir", directory], stdout=subprocess.PIPE)
            for _ in range(2)]
    added = [json.loads(process.communicate()[0])[0]["added"] for process in both]
    check("two processes that add at once: one unpacks", sorted(added) == [False, True], str(added))


def weights_mapped():
    with open("/proc/self/maps") as maps:
        return [line.split() for line in maps if line.rstrip().endswith("_weights.blob")]


def private_kb():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty"))


def test_sharing(directory):
    """The weights of two runners are mapped from the object in the store, and the process has no other copy of them."""
    path, tensor = package_models.package("blob"), numbers(1000)
    host = package_host.Host(directory)
    runners = [host.load(path)[0]]
    expected = host.run(runners[0], tensor.data_ptr(), list(tensor.shape))
    before = private_kb()
    runners.append(host.load(path)[0])
    same = host.run(runners[1], tensor.data_ptr(), list(tensor.shape)) == expected
    grown = private_kb() - before
    check("a second runner of 4.5 MiB of weights has only those of its own that it changes, 512 KiB",
          same and grown < 2048, f"{grown} KiB, same results: {same}")
    mapped = weights_mapped()
    host_files = {int(words[4]) for words in mapped}
    objects = {os.lstat(os.path.join(at, name)).st_ino for at, _, names in os.walk(os.path.join(directory, "objects"))
               for name in names}
    check("weights in a file of their own are mapped from the object",
          len(mapped) >= 2 and host_files <= objects, str(mapped))
    for runner in runners:
        host.unload(runner)
    check("and no longer once the runners are gone", not weights_mapped())
    host.close()


def write_safetensors(path, tensors):
    """Writes the file. tensors: names, sizes and float32 values, row by row."""
    header, offset = {}, 0
    for name, (sizes, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(struct.pack(f"<{len(values)}f", *values))


def test_weights_of_a_file(embedded, directory, work):
    """The tensors of a .safetensors file replace those of the package with the same names; the others stay."""
    source, tensor = embedded, numbers(3, 64)
    model = package_models.define_modules(torch)[0]
    raw, path = os.path.join(work, "input"), os.path.join(work, "tuned.safetensors")
    with open(raw, "wb") as file:
        file.write(struct.pack(f"<{tensor.numel()}f", *tensor.reshape(-1).tolist()))

    def play(*words):
        code, out, err = tool(directory, "run-package", source, "--input", f"float32:{tensor.shape[0]}x64=@{raw}", "--json",
                              "--all-values", *words)
        return [o["values"] for o in json.loads(out)["outputs"]] if code == 0 else err

    def eager():
        with torch.no_grad():
            return [one.reshape(-1).tolist() for one in model(tensor)]

    plain = play()
    check("without a file it has its own weights", near(plain, eager()), str(plain)[:300])
    with torch.no_grad():
        model.weight.mul_(-0.5)
        model.bias.add_(3)
    tuned = {"weight": ([64, 64], model.weight.reshape(-1).tolist()), "bias": ([64], model.bias.tolist())}
    for order in (tuned, {"odd": ([1], [0]), **tuned}):  # the second: at addresses that are not multiples of 16
        write_safetensors(path, order)
        if "odd" in order:
            said = play("--weights", path)
            check("a tensor that the model does not have is refused", "odd is not a constant" in said, said)
        for words in (("--ignore-unknown",), ("--ignore-unknown", "--map-weights")):
            got = play("--weights", path, *words)
            check(f"weights of a file, {list(order)[0]} first {words}", near(got, eager()), str(got)[:300])
    check("the next run has the package's own again", near(play(), plain))
    for name, tensors, words in (
            ("of other sizes", {"weight": ([64, 32], [0] * 2048)}, ("weight", "[64, 32]", "[64, 64]")),
            ("of another model", {"layer.weight": ([2], [0, 0])}, ("no tensor of the model", "layer.weight"))):
        write_safetensors(path, tensors)
        said = play("--weights", path, "--ignore-unknown")
        check(f"weights {name} are refused, with both sides", isinstance(said, str) and all(w in said for w in words), said)
    said = play("--weights", path + ".none")
    check("a file of weights that is not there", "no such file" in said, said)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 5)
    said = play("--weights", path)
    check("a truncated file of weights", "truncated" in said, said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may enter a chroot")
def test_rootfs(embedded, work):
    """scripts/packaging/image-rootfs: in a chroot with nothing else, not even /proc, the package runs, and can be added."""
    source, tensor = embedded, numbers(3, 64)
    root = os.path.join(work, "rootfs")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts", "packaging", "image-rootfs")
    done = subprocess.run([script, root, source], env={**os.environ, "BUILD": package_models.BUILD}, capture_output=True, text=True)
    check("a root file system is made", done.returncode == 0, done.stderr)
    size = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(root) for name in names)
    check("the program, its libraries and the package have at most 30 MB", size < 30e6, str(size))
    with open(os.path.join(root, "input"), "wb") as file:
        file.write(struct.pack(f"<{tensor.numel()}f", *tensor.reshape(-1).tolist()))
    model = package_models.define_modules(torch)[0]
    with torch.no_grad():
        expected = [one.reshape(-1).tolist() for one in model(tensor)]
    for cache, added in (("/cache", False), ("/tmp/other", True)):
        found = subprocess.run([shutil.which("chroot"), root, "/usr/bin/aoticache", "run-package", "/" + os.path.basename(source), "--json",
                                "--all-values", "--input", f"float32:{tensor.shape[0]}x64=@/input"],
                               env={"AOTICACHE_DIR": cache, "HOME": "/tmp"}, capture_output=True, text=True)
        check(f"it runs there, with the cache {cache}", found.returncode == 0, found.stderr)
        report = json.loads(found.stdout or "{}")
        check(f"its results are right, added: {added}", report.get("added") == added
              and near([o["values"] for o in report["outputs"]], expected), found.stdout[:300])
    check("no copy of a library is left", not [name for name in os.listdir(os.path.join(root, "tmp")) if "load" in name])
    done = subprocess.run([script, root], env={**os.environ, "BUILD": package_models.BUILD}, capture_output=True, text=True)
    check("a subdirectory with something in it is left alone", done.returncode == 1 and "not empty" in done.stderr, done.stderr)


def digests(directory):
    return {name: hashlib.sha256(open(os.path.join(at, name), "rb").read()).hexdigest()
            for at, _, names in os.walk(os.path.join(directory, "objects")) for name in names}


def rewrite(source, target, change, compression=zipfile.ZIP_STORED, zip64=False):
    """Writes a copy in which change(name, bytes) gives each entry's new name and contents, or None to leave it out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            changed = change(name, old.read(name))
            if changed is not None:
                with new.open(zipfile.ZipInfo(changed[0]) if zip64 else changed[0], "w", force_zip64=zip64) as entry:
                    entry.write(changed[1])
    return target


def test_other_archives(embedded, directory, work):
    """The same package packed in other ways runs; hostile and damaged ones are refused and leave no files."""
    source = embedded
    same = lambda name, data: (name, data)
    good = {"deflated": dict(change=same, compression=zipfile.ZIP_DEFLATED), "zip64": dict(change=same, zip64=True),
            "without a top subdirectory": dict(change=lambda name, data: (name.split("/", 1)[1], data))}
    for name, how in good.items():
        path = rewrite(source, os.path.join(work, "good.pt2"), **how)
        code, out, err = tool(directory, "run-package", path, "--input", "float32:3x64", "--json")
        check(f"{name}: it runs", code == 0 and len(json.loads(out)["outputs"]) == 2, err)
    library = next(n for n in zipfile.ZipFile(source).namelist() if n.endswith(".so"))
    bad = {"absolute name": (lambda n, d: ("/" + n, d), "absolute"),
           "parent subdirectory": (lambda n, d: (n.replace("aotinductor/model", "aotinductor/../model"), d), '".."'),
           "backslash": (lambda n, d: (n.replace("/model/", "\\model\\"), d), "backslash"),
           "no library": (lambda n, d: None if n.endswith(".so") else (n, d), "no library"),
           "no model": (lambda n, d: None if "aotinductor" in n else (n, d), "no model")}
    before = trace(directory)
    for name, (change, words) in bad.items():
        path = rewrite(source, os.path.join(work, "bad.pt2"), change)
        code, out, err = tool(directory, "add", path)
        check(f"{name}: refused with the reason", code in (1, 2) and words in err, f"{code} {err}")
    path = rewrite(source, os.path.join(work, "bad.pt2"), same, zipfile.ZIP_LZMA)
    code, out, err = tool(directory, "add", path)
    check("another compression: refused with its number", code != 0 and "method 14" in err, err)
    path = os.path.join(work, "bad.pt2")
    shutil.copy(source, path)
    with open(path, "r+b") as file:
        file.seek(zipfile.ZipFile(source).getinfo(library).header_offset + 40000)
        file.write(b"damage")
    code, out, err = tool(directory, "add", path)
    check("a damaged library: refused by its checksum", code != 0 and "CRC" in err, err)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(source) // 2)
    code, out, err = tool(directory, "add", path)
    check("half a package: refused", code != 0 and "valid ZIP archive" in err, err)
    check("what was refused left nothing", trace(directory).keys() == before.keys())


def numbers(*sizes):
    return (torch.arange(1.0, 1 + torch.Size(sizes).numel()) * 5 % 17 / 8 - 1).reshape(sizes)


@pytest.fixture(scope="module", autouse=True)
def ends_sound(directory):
    """Checks at the end that the stored files are unchanged."""
    yield
    if not os.path.isdir(directory):
        return  # no test used it
    assert all(digest.endswith(name) for name, digest in digests(directory).items()), "an object was changed by a run"
    assert tool(directory, "verify")[0] == 0
