#!/usr/bin/env bash
# For the day there is a GPU: builds the cuda plugin, the plain backend and the tests of its operators with nvcc and a C compiler alone (nothing is installed, no network, a copy of
# the repository), runs all operator tests against the plain backend (under compute-sanitizer too, where it is), then measures layers of LLaMA-7B's shape and prints one table.
# Less than 8 minutes with 16 cores.
#
#     bench/gpu.sh [--stand-in] [--built | --pack] [FOLDER]     FOLDER: of what is built (build/gpu)
#
# Where the programs are (PROGRAMS: build, or what --pack took along) whole agents are tried too: tokens over HTTP beside the CPU's, networks, shares and a pool (bench/gpu/agents.sh).
# Where UCX_CUDA names a folder with a UCX that was built with CUDA, rows go from one agent's GPU to another's, too (bench/gpu/direct.sh).
# --built: FOLDER holds it all already (built elsewhere, or by the call before), nothing is compiled: all of it takes some 4 minutes then.
# --pack: builds for CUDA_ARCHS where there is no GPU, puts the programs of build/ with their libraries and the golden models (GOLDEN: ../shared) beside it, and makes FOLDER.tar.xz of
# it, for `bench/gpu.sh --built FOLDER` in a copy of the repository on a machine that has one.
# --stand-in: the same with tests/cuda_on_cpu for a GPU and small shapes: whether this script works, not how fast anything is. Objects of kernels and of the stand-in that lie in
# STANDIN_OBJECTS (build/obj/tests/cuda_on_cpu, where `make cuda-on-cpu` has them) are taken as they are. CC, CXX and NVCC name compilers, CUDA_ARCHS="90" the architectures (that of the GPU).
set -euo pipefail
cd "$(dirname "$0")/.."
standin= built= pack=
while [ $# -gt 0 ]; do
    case $1 in
    --stand-in) standin=1 ;;
    --built) built=1 ;;
    --pack) pack=1 ;;
    *) break ;;
    esac
    shift
done
out=$(realpath -m "${1:-build/gpu}")
CC=${CC:-cc} CXX=${CXX:-g++}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
jobs=$(nproc)
export CC CXX NVCC out standin
mkdir -p "$out"

say() { echo "== $* (second $SECONDS)"; }
fail() { echo "bench/gpu.sh: $*" >&2; exit 1; }

# ---- what is built ----
common=(agent/backend/tensor.c common/bytes.c common/plugin_object.c common/spread.c common/status.c common/utf8.c model/weights.c model/graph/kinds.c
    model/dtype/{blocks,dtype,half,pack_blocks,pack_superblocks,quantise,superblocks}.c)
host=(agent/backend/cuda/*.c)
reference=(agent/backend/{backend,plugin}.c agent/backend/plain/*.c common/env.c bench/gpu/none.c)
sampler=(agent/engine/sampler*.c common/sampling.c)
kernels=(agent/backend/cuda/*.cu)
tests=(products operators attention experts groups fused alone steps streams sampling)
cflags=(-std=c11 -D_GNU_SOURCE -O2 -fPIC -pthread -Wall -Wno-format-truncation -I. -Ibench/gpu "-DHP_VERSION=\"$(cat VERSION)\"")

object() { echo "$out/$(echo "$1" | tr / _).o"; }
made() { [ -n "$standin" ] && [ -n "${STANDIN_OBJECTS:-}" ] && cp "$STANDIN_OBJECTS/$(basename "${1%.*}").o" "$(object "$1")" 2>/dev/null; } # source
compile() { # source
    case $1 in
    *.cc | *.cu) ! made "$1" || return 0 ;;
    esac
    case $1 in
    *_avx2.c) "$CC" "${cflags[@]}" -mavx2 -mfma -mf16c -c "$1" -o "$(object "$1")" ;;
    *_avx512.c) "$CC" "${cflags[@]}" -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -c "$1" -o "$(object "$1")" ;;
    *.c) "$CC" "${cflags[@]}" -c "$1" -o "$(object "$1")" ;;
    *.cc) "$CXX" -std=c++17 -O2 -g1 -fPIC -pthread -Itests/cuda_on_cpu -I. -c "$1" -o "$(object "$1")" ;;
    *.cu) if [ -n "$standin" ]; then
              "$CXX" -x c++ -std=c++17 -O1 -g1 -fPIC -fsanitize=thread -Wno-unknown-pragmas -Itests/cuda_on_cpu -I. -c "$1" -o "$(object "$1")"
          else
              # Hopper alone has what this file is made of (Makefile)
              [[ $1 != */flash_hopper.cu ]] || codes=(-gencode arch=compute_90a,code=sm_90a)
              "$NVCC" -std=c++17 -O3 -Xcompiler -fPIC --expt-relaxed-constexpr "${codes[@]}" -I. -c "$1" -o "$(object "$1")"
          fi ;;
    esac
}
objects() { for one in "$@"; do object "$one"; done; }

sources=("${common[@]}" "${host[@]}" "${reference[@]}" "${sampler[@]}" "${kernels[@]}" bench/gpu/layers.c bench/gpu/measure.c)
for t in "${tests[@]}"; do sources+=("tests/unit/agent/backend/cuda_${t}_test.c"); done
if [ -n "$standin" ]; then
    sources+=(tests/cuda_on_cpu/*.cc)
    link=("$CXX" -shared -lstdc++ -ldl)
    runtime=($(objects tests/cuda_on_cpu/*.cc))
else
    [ -x "$NVCC" ] || fail "there is no nvcc at $NVCC (NVCC=/path/to/nvcc says where)"
    codes=(-arch=native)
    [ -z "${CUDA_ARCHS:-}" ] || { codes=(); for a in $CUDA_ARCHS; do codes+=(-gencode "arch=compute_$a,code=sm_$a"); done; }
    link=("$NVCC" -shared -cudart static)
    runtime=()
fi
build() {
    say "building in $out"
    tools/plugin_interface "$CC" "$out/plugin_interface.c"
    "$CC" "${cflags[@]}" -c "$out/plugin_interface.c" -o "$out/plugin_interface.o"
    export -f compile object made
    printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -I{} bash -c "$(declare -p cflags codes 2>/dev/null); compile {}" || fail "it does not compile"
    "${link[@]}" -o "$out/libhp-cuda.so" $(objects "${kernels[@]}" "${host[@]}" "${common[@]}") "$out/plugin_interface.o" "${runtime[@]}" -lm -lpthread -ldl || fail "the plugin does not link"
    shared=($(objects "${common[@]}" "${reference[@]}" "${sampler[@]}") "$out/plugin_interface.o")
    for t in "${tests[@]}"; do
        "$CC" -o "$out/cuda_${t}_test" "$(object "tests/unit/agent/backend/cuda_${t}_test.c")" "${shared[@]}" -lm -lpthread -ldl
    done
    "$CC" -o "$out/measure" $(objects bench/gpu/measure.c bench/gpu/layers.c) "${shared[@]}" -lm -lpthread -ldl
}
[ -n "$built" ] || build

# ---- what is taken along ----
networks=(bert-ts17 vit-dy18 swin-dy20 resnet50-dy20-external mobilenet_v3-ts17 unet-dy18 yolo-ts17)
of_the_system='/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so'
pack() {
    local programs=(build/hpctl build/hp-agent build/hp-coordinator) golden=${GOLDEN:-../shared}
    say "packing $out"
    [ -x build/hpctl ] || fail "there are no programs: make all builds them"
    mkdir -p "$out/programs/lib" "$out/models"
    cp "${programs[@]}" "$out/programs/"
    strip "$out"/programs/hp* || true
    ldd "${programs[@]}" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | grep -vE "$of_the_system" | xargs -I{} cp -L {} "$out/programs/lib/"
    for network in "${networks[@]}"; do
        [ -d "$golden/golden-onnx/models/$network" ] || continue
        mkdir -p "$out/models/$network"
        cp "$golden/golden-onnx/models/$network"/{model.onnx*,inputs.npz} "$out/models/$network/"
    done
    [ ! -e "$golden/golden-families/bert/model-f32.gguf" ] || cp "$golden/golden-families/bert/model-f32.gguf" "$out/models/bert.gguf"
    XZ_OPT=${XZ_OPT:--3} tar -C "$(dirname "$out")" --exclude='*.o' -cJf "$out.tar.xz" "$(basename "$out")"
    say "packed: $out.tar.xz, $(du -h "$out.tar.xz" | cut -f1); unpack it beside a copy of the repository and call bench/gpu.sh --built FOLDER"
}
[ -z "$pack" ] || { pack; exit 0; }

# ---- what is tested ----
export HP_CUDA_PLUGIN=$out/libhp-cuda.so
[ -z "$standin" ] || export HP_TEST_SECONDS=${HP_TEST_SECONDS:-600}
failed=0
for t in "${tests[@]}"; do
    say "operators against the plain backend: $t"
    "$out/cuda_${t}_test" || failed=$((failed + 1))
done

# ---- what is measured ----
say "measuring"
"$out/measure" ${standin:+--small} | tee "$out/table.txt"

# ---- whole agents ----
programs=${PROGRAMS:-$([ -x "$out/programs/hpctl" ] && echo "$out/programs" || echo build)}
if [ -x "$programs/hpctl" ]; then
    say "whole agents of $programs"
    bench/gpu/agents.sh "$programs" "$out/models" "$out" ${standin:+--small} || failed=$((failed + 1))
    if [ -n "${UCX_CUDA:-}" ]; then
        say "rows from GPU to GPU by $UCX_CUDA"
        bench/gpu/direct.sh "$programs" "$out" ${standin:+--small} || failed=$((failed + 1))
    fi
else
    say "whole agents are left out: there are no programs in $programs (make all)"
fi

# ---- what the sanitizer sees ----
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$NVCC")/compute-sanitizer")
races_are_cublas() { # log
    grep -q 'Error: Race reported.* access at nvjet_' "$1" && ! grep 'Error: ' "$1" | grep -qv 'Race reported.* access at nvjet_'
}
sanitize() { # tool:test
    tool=${1%%:*} t=${1##*:}
    HP_TESTS_TOGETHER=1 HP_TEST_CUDA_APART=1 timeout "$sanitize_s" "$sanitizer" --tool "$tool" --error-exitcode 9 "$out/cuda_${t}_test" >"$out/$tool-$t.log" 2>&1
    rc=$?
    [ $rc -ne 9 ] || [ "$tool" != racecheck ] || races_are_cublas "$out/$tool-$t.log" || rc=1
    case $rc in
    0) echo "ok compute-sanitizer $tool: $t" ;;
    9) echo "ok compute-sanitizer $tool: $t, but for what it says of cuBLAS's own kernels" ;;
    124) echo "skipped compute-sanitizer $tool: $t was not through after $sanitize_s s" ;;
    *) echo "not ok compute-sanitizer $tool: $t"; tail -n 20 "$out/$tool-$t.log"; return 1 ;;
    esac
}
if [ -z "$standin" ] && [ -x "$sanitizer" ]; then
    say "compute-sanitizer, all tests side by side"
    sanitize_s=${SANITIZE_S:-100}
    export -f sanitize races_are_cublas
    export sanitizer sanitize_s
    for tool in memcheck racecheck; do
        printf "$tool:%s\n" "${tests[@]}" | xargs -P "$jobs" -I{} bash -c 'sanitize {}' || failed=$((failed + 1))
    done
else
    say "compute-sanitizer is left out: there is none"
fi

say "done: $failed of the tests failed"
cat "$out/table.txt"
[ "$failed" -eq 0 ]
