#!/usr/bin/env bash
# Whole agents on a GPU beside agents on the CPU, for bench/gpu.sh: do both say the same tokens over HTTP, do networks give the same numbers, what does a cluster measure of a GPU's
# shares, and does a pool serve from them. Needs the programs (a folder `programs` of bench/gpu.sh --pack, or a build), bash and, to compare numbers, python3.
#
#     bench/gpu/agents.sh PROGRAMS MODELS OUT [--small]     HP_CUDA_PLUGIN: the plugin. MODELS: golden models; what is not there is left out
#
# --small: for a stand-in: one prompt, one network, the whole GPU alone.
set -uo pipefail
programs=$(realpath "$1") models=$(realpath -m "$2") out=$(realpath -m "$3") small=${4:-}
demo=$(dirname "$(realpath "$0")")/../../examples/demo-model/demo-q8_0.gguf
[ ! -d "$programs/lib" ] || export LD_LIBRARY_PATH=$programs/lib
work=$(mktemp -d)
export HP_CONFIG_DIR=$work/config
hpctl() { timeout "${limit_s:-60}" "$programs/hpctl" "$@"; }
trap 'limit_s=20 hpctl local down --all >/dev/null 2>&1; rm -rf "$work"' EXIT
failed=0
ok() { echo "ok agents: $*"; }
not_ok() { echo "not ok agents: $*"; failed=$((failed + 1)); }
member() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -n 1; } # of JSON, a text

post() { # port path body
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$2" "${#3}" "$3" >&3
    timeout 60 cat <&3
    exec 3>&-
}

# ---- two clusters of one agent ----
declare -A port
cluster() { # name, options
    local name=$1 said
    shift
    said=$(hpctl local up --name "$name" --agents 1 --dir "$work/$name" "$@" -o json) || { not_ok "a cluster with $*: $said"; exit 1; }
    port[$name]=$(echo "$said" | member http)
    port[$name]=${port[$name]##*:}
}
memory=$([ -n "$small" ] && echo 256MiB || echo 8GiB)
cluster cpu
cluster gpu --device "cuda:0,mem=$memory"

# ---- tokens over HTTP ----
prompts=("What is the capital of France?" "Tell me a story." "Count to ten.")
[ -z "$small" ] || prompts=("${prompts[0]}")
for name in cpu gpu; do
    began=$SECONDS
    hpctl deploy "$demo" --name demo --compute f32 --max-context 256 --max-sequences 4 --context "$name" -o json >"$out/agents-deploy-$name.json" 2>&1 || { not_ok "deploying on $name: $(head -c 300 "$out/agents-deploy-$name.json")"; exit 1; }
    echo "deployed on $name in $((SECONDS - began)) s"
done
for prompt in "${prompts[@]}"; do
    asked="{\"model\": \"demo\", \"messages\": [{\"role\": \"user\", \"content\": \"$prompt\"}], \"max_tokens\": $([ -n "$small" ] && echo 6 || echo 48), \"temperature\": 0}"
    for name in cpu gpu; do
        post "${port[$name]}" /v1/chat/completions "$asked" | tr -d '\n' | grep -o '"content": *"[^"]*' | tail -n 1 >"$work/said-$name"
    done
    if [ -s "$work/said-cpu" ] && cmp -s "$work/said-cpu" "$work/said-gpu"; then
        ok "the same tokens over HTTP: $prompt $(wc -c <"$work/said-gpu") bytes"
    else
        not_ok "$prompt: $(cat "$work/said-cpu") by the CPU, $(cat "$work/said-gpu") by the GPU"
    fi
done
for name in cpu gpu; do hpctl undeploy demo --context "$name" >/dev/null 2>&1; done

# ---- networks ----
compare() { # a.npz b.npz: the largest difference of float32 arrays, as a part of the largest number
    python3 - "$@" <<'PYTHON'
import ast, struct, sys, zipfile
def arrays(path):
    found = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            data = z.read(name)
            size, = struct.unpack("<H", data[8:10])
            if ast.literal_eval(data[10:10 + size].decode())["descr"] == "<f4":
                found[name] = struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size:])
    return found
a, b = arrays(sys.argv[1]), arrays(sys.argv[2])
worst = max(max(abs(x - y) for x, y in zip(a[n], b[n])) / max(map(abs, b[n])) for n in b)
print(f"{worst:.2g}")
sys.exit(worst > 2e-5)
PYTHON
}
networks=(bert-ts17 vit-dy18 swin-dy20 resnet50-dy20-external mobilenet_v3-ts17 unet-dy18 yolo-ts17)
[ -z "$small" ] || networks=(bert-ts17)
for network in "${networks[@]}"; do
    at=$models/$network
    [ -e "$at/model.onnx" ] && command -v python3 >/dev/null || { echo "skipped agents: $network"; continue; }
    for name in cpu gpu; do
        device=()
        [ $name = cpu ] || device=(--device "cuda:0,mem=$([ -n "$small" ] && echo 64MiB || echo 2GiB)")
        hpctl model run "$at/model.onnx" --input "$at/inputs.npz" --case b1 "${device[@]}" -o "$work/$name.npz" >"$work/said" 2>&1 || { not_ok "$network on $name: $(tail -n 2 "$work/said")"; continue 2; }
    done
    worst=$(compare "$work/gpu.npz" "$work/cpu.npz") && ok "$network within $worst of the CPU" || not_ok "$network: $worst off the CPU"
done

# ---- shares, measured and served from ----
bert=$models/bert.gguf
if [ -e "$bert" ]; then
    budget_s=$([ -n "$small" ] && echo 1 || echo 6) shares=$([ -n "$small" ] && echo 1 || echo 1,2,4)
    if limit_s=90 hpctl profile model "$bert" --lengths 16 --batches "$([ -n "$small" ] && echo 1 || echo 1,8)" --shares "$shares" --agents a0 --budget "$budget_s" --context gpu -o json >"$out/agents-bert.json" 2>"$work/said"; then
        ok "shares $shares of the GPU are measured ($out/agents-bert.json)"
        printf '{"format": "hp-workload/1", "models": [{"name": "bert", "model": "%s", "weight": 1, "slo_s": 5, "lengths": {"buckets": [16]}}]}' "$bert" >"$work/workload.json"
        hpctl apply -f "$work/workload.json" --context gpu -o json >"$out/agents-pool.json" 2>&1 &&
            post "${port[gpu]}" /v1/embeddings '{"model": "bert", "input": [1, 2, 3, 4]}' >"$work/said" && grep -q '"embedding"' "$work/said" &&
            ok "a pool serves from the GPU" || not_ok "a pool on the GPU: $(tail -c 300 "$out/agents-pool.json") $(tail -c 300 "$work/said")"
    else
        not_ok "measuring shares: $(tail -n 3 "$work/said")"
    fi
else
    echo "skipped agents: shares, there is no $bert"
fi
echo "agents: $failed failed"
[ "$failed" -eq 0 ]
