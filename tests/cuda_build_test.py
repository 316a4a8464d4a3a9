"""Building the CUDA plugin: what nvcc makes of its kernels, where there is an nvcc (no hot kernel spills; where cuobjdump is, decode loads weights 16 bytes at a time), and the script that
builds, tests and measures where nothing but CUDA and a C compiler is, with the stand-in for a GPU."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tap import main, skip, test

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.path.abspath(os.environ.get("HP_BUILD", os.path.join(ROOT, "build")))
TOOL = os.path.join(ROOT, "tools", "cuda_report")
# As nvcc says it: a kernel that is well, and one that spills.
SAID = """ptxas info    : Compiling entry function '_Z13decode_kernelILi3ELi1ELb0EEv11gpu_product' for 'sm_80'
ptxas info    : Function properties for _Z13decode_kernelILi3ELi1ELb0EEv11gpu_product
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 56 registers, used 0 barriers, 17664 bytes smem
ptxas info    : Compiling entry function '_Z11norm_kernel8gpu_rowsPKfS1_fjS_' for 'sm_80'
    8 bytes stack frame, {spills} bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes smem
"""


def report(folder, **env):
    done = subprocess.run([TOOL, folder, "--check"], capture_output=True, text=True, env={**os.environ, **env})
    return done.returncode, done.stdout + done.stderr


@test
def a_hot_kernel_that_spills_is_told():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "x.ptxas"), "w") as f:
            f.write(SAID.format(spills=12))
        status, said = report(folder)
        assert status == 1 and "norm_kernel, sm_80: spills 16 bytes" in said, said
        assert re.search(r"decode_kernel Q8_0 1 +80 +56 +0 +17664 +50%", said), said
        os.remove(os.path.join(folder, "x.ptxas"))
        status, said = report(folder)
        assert status != 0 and "`make cuda` builds it" in said, said


# A loop over a row, as cuobjdump says it, of two kernels that should find the same bits.
TWINS = {"_Z13decode_kernelILi3ELi1ELb0EEv11gpu_product": "FFMA R1, R2, R3, R4", "_Z24decode_persistent_kernelILi3EEv11gpu_productj": "{adds}"}
LOOP = ("MOV R1, R2", "LDGSTS.E.BYPASS.128 [R1], [R2.64]", "IDP.4A.S8.S8 R1, R2, R3, R4", "{adds}", "@P0 BRA 0x10", "EXIT")


@test
def a_kernel_that_adds_up_otherwise_than_its_twin_is_told():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "x.ptxas"), "w") as f:
            for name in TWINS:
                f.write(f"ptxas info    : Compiling entry function '{name}' for 'sm_80'\nptxas info    : Used 56 registers, used 0 barriers\n")
        open(os.path.join(folder, "x.o"), "w").close()
        for adds, told in (("FFMA R9, R2, R3, R4", False), ("FADD R9, R2, R3", True)):
            sass = ["\tarch = sm_80"]
            for name, own in TWINS.items():
                sass += [f"\t\tFunction : {name}"] + [f"        /*{i * 16:04x}*/ {text.format(adds=own.format(adds=adds))} ;" for i, text in enumerate(LOOP)]
            for tool in ("cuobjdump", "nvdisasm"):
                with open(os.path.join(folder, tool), "w") as f:
                    f.write("#!/bin/sh\ncat <<'END'\n" + "\n".join(sass) + "\nEND\n")
                os.chmod(os.path.join(folder, tool), 0o755)
            _, said = report(folder, HP_CUDA_TOOLS=folder)
            assert ("decode_persistent_kernel Q8_0, sm_80: multiplies and adds up otherwise than decode_kernel does" in said) == told, said


@test
def no_hot_kernel_spills_and_decode_loads_wide():
    nvcc = shutil.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if os.path.exists("/usr/local/cuda/bin/nvcc") else None)
    if not nvcc:
        skip("there is no nvcc here")
    done = subprocess.run(["make", "--no-print-directory", "-j2", "cuda-report", f"BUILD={BUILD}", f"CUDA_OBJ={BUILD}/obj/cuda-report", "CUDA_ARCHS=90"],
                          cwd=ROOT, capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"decode_kernel Q4_K 1 +90", done.stdout) and re.search(r"decode_persistent_kernel Q4_K +90 +\d+ +0 ", done.stdout), done.stdout[-2000:]


@test
def a_header_that_changes_has_all_that_includes_it_built_anew():
    here = os.path.relpath(BUILD, ROOT) # as dependencies name what is built
    def built_after(header, *targets):
        done = subprocess.run(["make", "--no-print-directory", "-n", "-W", header, f"BUILD={here}", *targets], cwd=ROOT, capture_output=True, text=True,
                              env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")})
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout
    standin = f"{here}/tests/cuda_on_cpu/libhp-cuda.so"
    if "-c " in built_after("README.md", standin):
        skip("the stand-in is not built")
    kernels = sorted(name for name in os.listdir(os.path.join(ROOT, "agent", "backend", "cuda")) if name.endswith(".cu"))
    said = built_after("agent/backend/cuda/kernels.h", standin)
    including = [name for name in kernels if '"agent/backend/cuda/kernels.h"' in open(os.path.join(ROOT, "agent", "backend", "cuda", name)).read()]
    assert len(including) >= 5 and all(f"-c agent/backend/cuda/{name} " in said for name in including), (including, said)
    said = built_after("agent/backend/backend.h", standin)
    assert "-c agent/backend/cuda/cuda.c " in said and "tools/plugin_interface" in said and "-shared" in said, said


def standin_objects(folder):
    """What `make cuda-on-cpu` has compiled, but for one kernel and one part of the stand-in: these the script compiles itself, as it would all."""
    made = os.path.join(BUILD, "obj", "tests", "cuda_on_cpu")
    os.mkdir(folder)
    for name in os.listdir(made) if os.path.isdir(made) else ():
        if name.endswith(".o") and name not in ("green.o", "streams.o"):
            os.symlink(os.path.join(made, name), os.path.join(folder, name))
    return folder


@test
def the_script_for_a_gpu_builds_tests_and_measures():
    with tempfile.TemporaryDirectory() as folder:
        # Of long loops a share: the same programs go through all of them as unit tests (tests/share.h).
        more = {"PROGRAMS": BUILD, "PYTHON": sys.executable, "UCX_CUDA": os.path.join(BUILD, "tests", "attack", "shims", "gpu_direct.so"), "STANDIN_OBJECTS": standin_objects(os.path.join(folder, "objects")), "HP_TEST_SHARE": "6"}
        done = subprocess.run([os.path.join(ROOT, "bench", "gpu.sh"), "--stand-in", folder], capture_output=True, text=True, env={**os.environ, **more})
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        for words in ("ok cuda_products: ", "ok cuda_operators: ", "ok cuda_attention: attention_is_that_of_the_reference", "ok cuda_groups: ", "ok cuda_fused: ", "ok cuda_steps: ", "ok cuda_streams: ", "ok cuda_sampling: ", "cuda:0 CUDA stand-in", "copy within the GPU",
                      "prefill of 2048 tokens, bf16", "512 tokens after 6144", "decode, Q4_K", "64 sequences of 128 tokens", "8 sequences of 128 tokens, Q4_K", "weights to the GPU", "decode, Q4_K, 6 blocks stay: steps", "decode, Q4_K, the faster way: steps", "products of one row: ", "ok agents: the same tokens over HTTP", "agents: 0 failed", "ok direct: copy: the same tokens", "direct: 0 failed", "0 of the tests failed"):
            assert words in done.stdout, (words, done.stdout)
        with open(os.path.join(folder, "table.txt")) as f:
            assert len(f.read().splitlines()) == 19
        broken = subprocess.run([os.path.join(ROOT, "bench", "gpu.sh"), folder], capture_output=True, text=True, env={**os.environ, "NVCC": "/nowhere/nvcc"})
        assert broken.returncode != 0 and "there is no nvcc at /nowhere/nvcc" in broken.stderr, broken.stderr


main()
