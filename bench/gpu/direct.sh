#!/usr/bin/env bash
# Rows of prompts from one agent's GPU to another's by a UCX that was built with CUDA, for bench/gpu.sh: are tokens the same as by the host's memory, and how long is a prompt's first
# token away. Both agents have the same GPU, a process each. Needs the programs, the plugin, bash, and python3 (PYTHON) with numpy for a model of random weights.
#
#     UCX_CUDA=FOLDER bench/gpu/direct.sh PROGRAMS OUT [--small]     HP_CUDA_PLUGIN: the plugin. FOLDER: its libucp.so.0 and what that loads
#
# --small: for the stand-in: a small model, nothing measured, and UCX_CUDA is tests/attack/shims' gpu_direct.so, a UCX that knows the stand-in's memory.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath -m "$2") small=${3:-} python=${PYTHON:-python3} shim=
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
export HP_CONFIG_DIR=$work/config
libraries=${small:+/nowhere}
libraries=${libraries:-$UCX_CUDA}:$programs/lib
hpctl() { LD_PRELOAD=$shim LD_LIBRARY_PATH=$libraries timeout "${limit_s:-120}" "$programs/hpctl" "$@"; }
trap 'limit_s=20 hpctl local down --all >/dev/null 2>&1; rm -rf "$work"' EXIT
failed=0
ok() { echo "ok direct: $*"; }
not_ok() { echo "not ok direct: $*"; failed=$((failed + 1)); }

# Layers are the embedding, two of each block, and the head: a0 has half of the blocks.
blocks=4 prompt=2048 memory=8GiB answer=16 shape=(--type bf16 --width 4096 --heads 32 --kv-heads 32 --mlp 11008)
[ -z "$small" ] || blocks=2 prompt=136 memory=64MiB answer=2 shape=(--type f32 --width 256 --heads 4 --kv-heads 4 --mlp 256 --vocabulary 512)
"$python" "$here/../make_random_model.py" "$work/model.gguf" --blocks $blocks "${shape[@]}" >"$work/said" || { not_ok "no model: $(cat "$work/said")"; exit 1; }

first_tokens() { # name: of prompts that come one after the other
    hpctl load m --arrivals uniform --rate 3 --seconds 8 --prompt-tokens $prompt --answer-tokens 4 -o json >"$out/direct-load-$1.json" 2>&1
    "$python" - "$1" $prompt "$out/direct-load-$1.json" <<'PYTHON'
import json, sys
r = json.load(open(sys.argv[3]))["ttft_s"]
print(f"{sys.argv[1]}: the first token of {sys.argv[2]} comes after {r['p50'] * 1e3:.1f} ms in the median, {r['p90'] * 1e3:.1f} of nine in ten")
PYTHON
}

ids_of() { tr -d '\n ' <"$out/direct-$1.json" | grep -o '"ids":\[[0-9,]*'; }

try() { # name, what rows go by, transports of UCX if not its own
    local name=$1 how=$2 transports=${3:-}
    shim=
    [ -z "$transports" ] || export UCX_TLS=$transports
    [ -z "$transports" ] || [ -z "$small" ] || shim=$UCX_CUDA
    hpctl local up --name "$name" --agents 2 --dir "$work/$name" --device "a0=cuda:0,mem=$memory" --device "a1=cuda:0,mem=$memory" -o json >"$work/said" 2>&1 &&
        hpctl deploy "$work/model.gguf" --name m --layers "0-$blocks:a0,$((blocks + 1))-$((2 * blocks + 1)):a1" --max-context 4096 --max-sequences 2 --prefix-cache off -o json >"$work/said" 2>&1 ||
        { not_ok "$name: $(tail -c 400 "$work/said")"; return; }
    hpctl node describe a1 -o json | tr -d '\n' | grep -q "\"rows of large frames\", *\"how\": *\"$how\"" || not_ok "$name: rows do not go by $how"
    hpctl model greedy --deployment m --ids "$(seq -s, 100 $((99 + prompt / 2)))" --tokens $answer -o json >"$out/direct-$name.json" 2>&1 || not_ok "$name: $(tail -c 300 "$out/direct-$name.json")"
    [ -n "$small" ] || first_tokens "$name"
    hpctl local down --name "$name" >/dev/null 2>&1
    unset UCX_TLS
    [ "$name" = host ] || { [ -n "$(ids_of "$name")" ] && [ "$(ids_of "$name")" = "$(ids_of host)" ] && ok "$name: the same tokens as by the host's memory"; } || not_ok "$name: other tokens than by the host's memory"
}
try host "by pinned host memory"
try copy GPU-direct tcp,cuda_copy
[ -n "$small" ] || try ipc GPU-direct tcp,cuda_copy,cuda_ipc
echo "direct: $failed failed"
[ "$failed" -eq 0 ]
