"""`pip install .`: the wheel, built and installed into a fresh virtual environment, works there, away from the sources.

Environment: BUILD; the wheel's C parts are built in $BUILD/wheel, a minute the first time. PyTorch is that of this Python.
"""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

from torch_scenarios import BUILD, CACHE, TOP

CHECK = """
import os, sys, torch, aoticache
assert "/site-packages/" in aoticache.__file__ and aoticache._library.load().path.startswith(os.path.dirname(aoticache.__file__))
x = torch.linspace(-1, 1, 10)
aoticache.enable("aten::abs", "aten::clamp", mode="wait")
assert torch.equal(torch.abs(x), x.clone().abs_()) and torch.equal(torch.abs(x), x.clone().abs_())
assert aoticache.stats().operators["aten::abs"].hits >= 1 and aoticache.stats().interface == "bridge"
print("done")
"""


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def build_wheel(folder):
    if importlib.util.find_spec("hatchling") is None:
        print("hatchling is not installed: scripts/install-deps installs it")
        sys.exit(77)
    variables = {**os.environ, "AOTICACHE_WHEEL_BUILD": os.path.join(BUILD, "wheel"), "AOTICACHE_WHEEL_JOBS": "2"}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        variables.pop(name, None)
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, TOP,
        env=variables)
    (wheel,) = [name for name in os.listdir(folder) if name.endswith(".whl")]
    return os.path.join(folder, wheel)


def check_contents(wheel):
    assert os.path.basename(wheel).startswith("aoticache-") and "-py3-none-linux_" in wheel, wheel
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    for name in ("py.typed", "lib/libaoticache.so.0", "lib/libaoticache_torchshim.so", "lib/libaoticache_cxxbridge.so",
                 "share/aoticache/worker.py", "share/aoticache/bridge.cpp", "share/aoticache/kernels/aten_abs.c",
                 "include/aoticache/eager/torch/bridge.h", "include/aoticache/eager/value.h", "bin/aoticache",
                 "bin/aoticache-gc", "bin/aoticache-stat"):
        assert f"aoticache/{name}" in names, f"{name} is not in the wheel"
    assert "Requires-Python: >=3.10" in metadata
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert all("extra ==" in line for line in required), required


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(folder)
        check_contents(wheel)
        print("ok - wheel_has_everything", flush=True)
        venv = os.path.join(folder, "venv")
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        (site,) = [os.path.join(venv, "lib", one, "site-packages") for one in os.listdir(os.path.join(venv, "lib"))]
        run(sys.executable, "-m", "pip", "--python", os.path.join(venv, "bin", "python"), "install", "--no-deps",
            "--no-index", wheel)
        python = os.path.join(venv, "bin", "python")
        variables = {name: value for name, value in os.environ.items()
                     if name not in ("PYTHONPATH", "BUILD", "AOTICACHE_HOME", "AOTICACHE_LIBRARY", "AOTICACHE_PYTHON")}
        variables["AOTICACHE_DIR"] = CACHE
        done = subprocess.run([python, "-m", "aoticache", "doctor"], env=variables, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 1 and "pip install 'aoticache[torch]'" in done.stdout, done.stdout + done.stderr
        print("ok - doctor_without_pytorch", flush=True)
        with open(os.path.join(site, "pytorch.pth"), "w") as file:
            file.write(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)) + "\n")
        assert "done" in run(python, "-c", CHECK, env=variables, cwd=folder)
        print("ok - operators_are_served", flush=True)
        assert "aten::abs" in run(os.path.join(venv, "bin", "aoticache"), "ls", env=variables, cwd=folder)
        assert "FAIL" not in run(python, "-m", "aoticache", "doctor", env=variables, cwd=folder)
        print("ok - tools_are_commands", flush=True)
        shutil.rmtree(venv)


if __name__ == "__main__":
    main()
