#!/usr/bin/env python3
"""Faults that are put into the CUDA plugin on purpose, one at a time: each has to be found by its tests on the stand-in (tests/cuda_on_cpu). Works on a copy of the sources, and says which faults nobody found.

    tests/long/cuda_mutations.py [WORD ...]      only those whose description or file has one of these words
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults

TESTS = [f"build/tests/unit/agent/backend/cuda_{name}test" for name in ("products_", "attention_", "tiles_", "fused_", "experts_", "groups_", "operators_", "steps_", "streams_", "sampling_", "models_", "parts_", "")]
ROOM = "agent/backend/cuda/"

# What it is, file, what stands there, what takes its place (once).
FAULTS = [
    # barriers and shuffles
    ("tiles: no barrier between filling and reading", ROOM + "products.cu", "        tile_put(xs, values);\n        __syncthreads();", "        tile_put(xs, values);"),
    ("tiles: no barrier before the next tile", ROOM + "products.cu", "ws[i][tx + b * 16];\n        __syncthreads();", "ws[i][tx + b * 16];"),
    ("tiles: a barrier that some threads never reach", ROOM + "products.cu", "        tile_put(xs, values);\n        __syncthreads();", "        tile_put(xs, values);\n        if (threadIdx.x < 128)\n            __syncthreads();"),
    ("few rows: a shuffle that some lanes never reach", ROOM + "products.cu", "float sum = warp_sum(sums[r]);", "float sum = lane < 31 ? warp_sum(sums[r]) : 0;"),
    ("attention: no barrier before warps are joined", ROOM + "attention.cu", "        sums[warp][lane + i * WARP] = sum[i];\n    __syncthreads();", "        sums[warp][lane + i * WARP] = sum[i];"),
    ("attention: greatest scores of one warp are written by all", ROOM + "attention.cu", "    if (lane == 0) {\n        greatests[warp]", "    {\n        greatests[0]"),
    ("attention: a warp's sums are never written", ROOM + "attention.cu", "        sums[warp][lane + i * WARP] = sum[i];\n", "        if (warp)\n            sums[warp][lane + i * WARP] = sum[i];\n"),
    # decode
    ("decode: pieces are not waited for", ROOM + "decode.cu", "        async_groups_wait<1>();\n", ""),
    ("decode: the next piece is not waited for either", ROOM + "decode.cu", "async_groups_wait<1>", "async_groups_wait<2>"),
    ("decode: lanes do not wait for each other's copies", ROOM + "decode.cu", "        async_groups_wait<1>();\n        __syncwarp();\n", "        async_groups_wait<1>();\n"),
    ("decode: a piece is overwritten while lanes read it", ROOM + "decode.cu", "        __syncwarp();\n        fetch(i + 2);", "        fetch(i + 2);"),
    ("decode: one room for both pieces", ROOM + "decode.cu", "own + piece % 2 * turn + o * room * 16, from[o]", "own + o * room * 16, from[o]"),
    ("decode: a row's last piece is read past its end", ROOM + "decode_formats.cuh", "if (i + own < left && i + own < most * 16)", "if (i + own < left + 16 && i + own < most * 16)"),
    ("decode: tasks past a row's end", ROOM + "decode.cu", "j >= n_tasks)\n", "j > n_tasks)\n"),
    ("decode: rows that begin anywhere", ROOM + "decode.cu", "+ o * room * 16 + lead[o]", "+ o * room * 16"),
    ("decode: an output past the last is read", ROOM + "decode.cu", "const uint8_t *row = weight + (c0 + o < place.outputs ? c0 + o : c0) * p.row_bytes;", "const uint8_t *row = weight + (c0 + o) * p.row_bytes;"),
    ("decode: an output past the last is written", ROOM + "decode.cu", "r.output < at.outputs && r.row < rows;", "r.row < rows;"),
    ("decode: a row past the last is written", ROOM + "decode.cu", "r.output < at.outputs && r.row < rows;", "r.output < at.outputs && r.row < rows + 8;"),
    ("decode: rows past the last are not made", ROOM + "decode.cu", "return rows_at_once(rows);", "return rows;"),
    ("decode: rows past the last are read", ROOM + "decode.cu", "blockIdx.y < rows ?", "blockIdx.y < rows + 8 ?"),
    ("decode: offsets are left out", ROOM + "decode.cu", "sums[o][r] += tasks[o].offsets[k] * sum;", "sums[o][r] += 0 * sum;"),
    ("decode: sums of the wrong half", ROOM + "decode.cu", ": half              ? head.z", ": !half              ? head.z"),
    ("decode: MXFP4 in the order of the others", ROOM + "decode.cu", "bool by_turns = dtype == DTYPE_MXFP4;", "bool by_turns = false;"),
    ("decode: weights end where their allocation does", ROOM + "weights.c", "               : (matrix_bytes(w) + GPU_LOAD_BYTES - 1) / GPU_LOAD_BYTES * GPU_LOAD_BYTES;", "               : matrix_bytes(w);"),
    # decode by tensor cores
    ("tensor decode: pieces are not waited for", ROOM + "decode_tensor.cu", "        async_groups_wait<format::STAGES - 1>();\n", ""),
    ("tensor decode: lanes do not wait for each other's copies", ROOM + "decode_tensor.cu", "        async_groups_wait<format::STAGES - 1>();\n        __syncwarp();\n", "        async_groups_wait<format::STAGES - 1>();\n"),
    ("tensor decode: the next piece comes where this one lies", ROOM + "decode_tensor.cu", "(turn ? turn - 1 : format::STAGES - 1) * STAGE", "turn * STAGE"),
    ("tensor decode: scales are read before they are there", ROOM + "decode_tensor.cu", "by[1]);\n            __syncwarp();\n", "by[1]);\n"),
    ("tensor decode: no barrier before warps are joined", ROOM + "decode_tensor.cu", "    __syncthreads();\n    uint32_t row", "    uint32_t row"),
    ("tensor decode: one warp's sums are left out", ROOM + "decode_tensor.cu", "for (uint32_t w = 0; w < TENSOR_WARPS; w++)", "for (uint32_t w = 1; w < TENSOR_WARPS; w++)"),
    ("tensor decode: an output past the last is read", ROOM + "decode_tensor.cu", "(c < at.outputs ? c : at.outputs - 1) * row_bytes", "c * row_bytes"),
    ("tensor decode: an output past the last is written", ROOM + "decode_tensor.cu", "if (row < rows && c0 + c < at.outputs)", "if (row < rows)"),
    ("tensor decode: a row past the last is written", ROOM + "decode_tensor.cu", "if (row < rows && c0 + c < at.outputs)", "if (row < rows + 8 && c0 + c < at.outputs)"),
    ("tensor decode: a row's last piece is read past its end", ROOM + "decode_tensor.cu", "        end = left < end ? left : end;\n", "        (void)left;\n"),
    ("tensor decode: blocks past a row's end", ROOM + "decode_tensor.cu", "if (WHOLE || j < n)", "if (WHOLE || j <= n)"),
    ("tensor decode: rows that begin anywhere", ROOM + "decode_tensor.cu", "return format::AT_16 ? 0 : (rows.lead[h]", "return format::AT_16 ? 0 : (0 * rows.lead[h]"),
    ("tensor decode: rows past the last are not made", ROOM + "decode.cu", "return FRAGMENT_ROWS;", "return rows;"),
    ("tensor decode: what sums begin with is not taken away", ROOM + "forms.cuh", "-SUM_BEGIN * n.scale}", "0 * SUM_BEGIN * n.scale}"),
    ("tensor decode: offsets are left out", ROOM + "decode_tensor.cu", "sums.of[i] += t.offsets[i / 2] *", "sums.of[i] += 0 * t.offsets[i / 2] *"),
    ("tensor decode: a GPU without tensor cores for bytes", ROOM + "matmul.c", "s->device->facts.major >= 8);", "s->device->facts.major >= 7);"),
    ("bf16 decode: no barrier before warps are joined", ROOM + "decode_bf16.cu", "    __syncthreads();\n    uint32_t row", "    uint32_t row"),
    ("bf16 decode: an output past the last is read", ROOM + "decode_bf16.cu", "(c < place.outputs ? c : place.outputs - 1) * p.row_bytes", "c * p.row_bytes"),
    ("bf16 decode: an output past the last is written", ROOM + "decode_bf16.cu", "if (row < rows && c0 + c < at.outputs)", "if (row < rows)"),
    ("bf16 decode: a row past the last is written", ROOM + "decode_bf16.cu", "if (row < rows && c0 + c < at.outputs)", "if (row < rows + 8 && c0 + c < at.outputs)"),
    ("bf16 decode: a row past the last is read", ROOM + "decode_bf16.cu", "(row < p.rows ? row : 0) * p.in.stride", "row * p.in.stride"),
    ("bf16 decode: weights past a row's end", ROOM + "decode_bf16.cu", "k < inputs ? *(const uint4 *)(from[i] + k * 2) : uint4{};", "k < inputs + 8 ? *(const uint4 *)(from[i] + k * 2) : uint4{};"),
    ("bf16 decode: inputs past a row's end", ROOM + "decode_bf16.cu", "        if (k < p.inputs) {", "        if (k < p.inputs + 8) {"),
    ("bf16 decode: a third of each number alone", ROOM + "decode_bf16.cu", "for (int third = 2; third >= 0; third--)", "for (int third = 0; third >= 0; third--)"),
    ("bf16 decode: a warp's sums are left out", ROOM + "decode_bf16.cu", "for (uint32_t w = 0; w < BF16_WARPS; w++)", "for (uint32_t w = 1; w < BF16_WARPS; w++)"),
    ("bf16 decode: a GPU without such tensor cores", ROOM + "matmul.c", "!w->f32 && op->device->facts.major >= 8", "!w->f32 && op->device->facts.major >= 7"),
    ("products in one launch: blocks of another", ROOM + "products.cuh", "|| blockIdx.x < before)", "|| blockIdx.x <= before)"),
    ("products in one launch: one writes what another reads", ROOM + "matmul.c", "calls_are_apart(calls[k], calls[i]) &&", "calls[k] != calls[i] &&"),
    ("products in one launch: of other rows", ROOM + "matmul.c", "more->in.data == p->in.data &&", "true &&"),
    ("products in one launch: in other formats", ROOM + "matmul.c", "more->dtype == p->dtype &&", "more &&"),
    # many rows
    ("expand: pieces are not waited for", ROOM + "expand.cu", "    async_groups_wait<0>();\n", ""),
    ("expand: lanes do not wait for each other's copies", ROOM + "expand.cu", "    async_groups_wait<0>();\n    __syncwarp();\n", "    async_groups_wait<0>();\n"),
    ("expand: tasks past a row's end", ROOM + "expand.cu", "        if (first_task + task >= n_tasks)\n", "        if (first_task + task > n_tasks)\n"),
    ("halves: a panel that no 16 bytes of results divide", ROOM + "matmul.c", " / PANEL_LEAST * PANEL_LEAST;", ";"),
    ("halves: a panel's bias is the first one's", ROOM + "matmul.c", "p->bias ? p->bias + c : NULL", "p->bias"),
    ("halves: room for inputs is too small", ROOM + "matmul.c", "r.in_bytes = bytes_align(rows * inputs * HALF_BYTES);", "r.in_bytes = bytes_align((rows + 1) / 2 * inputs * HALF_BYTES);"),
    ("halves: room for cuBLASLt is not taken", ROOM + "matmul.c", "    r.bytes = r.in_bytes + r.panel_bytes + work_bytes(d);", "    r.bytes = r.in_bytes + r.panel_bytes;"),
    ("halves: cuBLASLt is given rows that lie anywhere", ROOM + "blas.cu", "    return all % BLAS_ALIGNMENT == 0 &&", "    return all != 0 &&"),
    ("halves: the way of another shape", ROOM + "blas.cu", "           a->rows == b->rows && ", "           "),
    ("room is not counted", ROOM + "matmul.c", "        bytes = halves > bytes ? halves : bytes;\n", "        (void)halves;\n"),
    # flash
    ("flash: keys are not waited for", ROOM + "flash.cu", "        async_groups_wait<0>();\n        __syncthreads();\n        turn_fetch<FORMAT, plan>(values", "        __syncthreads();\n        turn_fetch<FORMAT, plan>(values"),
    ("flash: values are not waited for", ROOM + "flash.cu", "        async_groups_wait<0>();\n        __syncthreads();\n        if (turn < last_turn)", "        __syncthreads();\n        if (turn < last_turn)"),
    ("flash: no barrier before keys are multiplied, and the next values", ROOM + "flash.cu", "        __syncthreads();\n        turn_fetch<FORMAT, plan>(values", "        turn_fetch<FORMAT, plan>(values"),
    ("flash: no barrier before values are multiplied, and the next keys", ROOM + "flash.cu", "        __syncthreads();\n        if (turn < last_turn)", "        if (turn < last_turn)"),
    ("flash: tokens that nobody wrote are read", ROOM + "flash.cuh", "first + TOKENS - 1 <= t.last;", "first <= t.last;"),
    ("flash: pages past the last are read", ROOM + "flash.cuh", "a.pages[t.pages + (page < last ? page : last)]", "a.pages[t.pages + (page < last + 9 ? page : last)]"),
    ("flash: a token sees those after it", ROOM + "flash.cuh", "if (position < row.first || position > row.last)", "if (position < row.first)"),
    ("flash: a token sees those before its window", ROOM + "flash.cuh", "if (position < row.first || position > row.last)", "if (position > row.last)"),
    ("flash: no turn is masked where the first row sees all", ROOM + "flash.cuh", "first < t.all_first || first + N - 1 > t.all_last", "first + N - 1 > t.all_last"),
    ("flash: rows past a tile are written", ROOM + "flash.cuh", "        if (own + h * 8 >= tile.count)\n            continue;\n", ""),
    ("flash: sums so far are not made smaller", ROOM + "flash.cuh", "            sums[n][k] *= keep[k / 2];", "            sums[n][k] *= keep[k / 2] > 2 ? 2 : 1;"),
    ("flash: sinks are no part of the sum", ROOM + "flash.cuh", "total = total * by + exp2f(sink - most);", "total = total * by;"),
    ("flash: the second half of a tile is the first", ROOM + "flash.cu", "    tile.first += at % parts * plan::rows;\n", ""),
    ("flash: the product after it has the rows of another head", ROOM + "flash.cuh", "column = head * N + threadIdx.x % 4 * 2;\n        float *to = a.out.data + row * a.out.stride + column;\n        unsigned *formed = (unsigned *)a.formed.to + (row * (uint64_t)(a.heads * N) + column) / 2;", "column = head * N + threadIdx.x % 4 * 2;\n        float *to = a.out.data + row * a.out.stride + column;\n        unsigned *formed = (unsigned *)a.formed.to + (row * (uint64_t)(a.heads * N) + column) / 2 + 4;"),
    ("hopper: what is fetched is not waited for", ROOM + "flash_hopper.cu", "    async_groups_wait<0>();\n    group_shared_written();\n", "    group_shared_written();\n"),
    ("hopper: no barrier before products", ROOM + "flash_hopper.cu", "    group_shared_written();\n    __syncthreads();\n", "    group_shared_written();\n"),
    ("hopper: scores are not waited for", ROOM + "flash_hopper.cu", "        group_wait<1>();\n", ""),
    ("hopper: sums are not waited for", ROOM + "flash_hopper.cu", "        group_wait<0>();\n        sums_keep", "        sums_keep"),
    ("hopper: one room for the keys of two turns", ROOM + "flash_hopper.cu", "turn_fetch<FORMAT, DIM>(keys + turn % 2 * KEYS_BYTES<DIM>", "turn_fetch<FORMAT, DIM>(keys + (turn + 1) % 2 * KEYS_BYTES<DIM>"),
    ("hopper: one room for the values of two turns", ROOM + "flash_hopper.cu", "turn_fetch<FORMAT, DIM>(values + (turn + 1) % 2 * KEYS_BYTES<DIM>", "turn_fetch<FORMAT, DIM>(values + turn % 2 * KEYS_BYTES<DIM>"),
    ("hopper: chunks lie as they come", ROOM + "flash_hopper.cu", "(chunk ^ row) % 8 * 16", "chunk % 8 * 16"),
    ("hopper: the second group has the rows of the first", ROOM + "flash_hopper.cu", "    queries += group * 64 * 128;\n", ""),
    ("hopper: pages of another turn", ROOM + "flash_hopper.cu", "pages_read<KEYS<DIM>>(a, t, (turn + 4) * KEYS<DIM>)", "pages_read<KEYS<DIM>>(a, t, (turn + 3) * KEYS<DIM>)"),
    ("flash: rows of other runs in a tile", ROOM + "tables.c", "uint32_t *at = run_is_tiled(r, tiles) ? &tiled : &other;", "uint32_t *at = run_is_tiled(r, tiles) ? &other : &tiled;"),
    ("flash: a GPU without tensor cores", ROOM + "kv.c", "capability >= 75 &&", "capability >= 60 &&"),
    # parts
    ("parts: lanes past a head read its neighbour", ROOM + "split.cu", "bool has = at < a.head_dim;", "bool has = true;"),
    ("parts: a block's other bytes", ROOM + "split.cu", "block + 1 + at % KV_Q8_ELEMENTS / 2", "block + 1 + at % 16 / 2"),
    # operators together
    ("together: rows that were written again", ROOM + "forms.c", "        f->form = GPU_FORM_NONE;\n}", "        f->form += 0;\n}"),
    ("together: rows of another tensor", ROOM + "forms.c", "have->rows.data == f->rows.data &&", "true &&"),
    ("together: what was made is known for ever", ROOM + "forms.c", "    if (!s->together)\n        s->formed.form = GPU_FORM_NONE;\n", ""),
    ("together: rows past the last are not made zero", ROOM + "rows.cu", "    return f.form != GPU_FORM_NONE && f.rows > rows ? f.rows : rows;", "    return f.form != GPU_FORM_NONE && f.rows > rows ? rows : rows;"),
    ("together: rows past the last of a norm are read", ROOM + "rows.cu", "    if (blockIdx.x >= rows) {", "    if (blockIdx.x > rows) {"),
    ("together: rows past the last of a gate are read", ROOM + "rows.cu", "    if (r < rows) {", "    if (r <= rows) {"),
    ("together: the sum is not written", ROOM + "rows.cu", "    return sums;\n}", "    return x;\n}"),
    ("together: a GELU alone is not written", ROOM + "rows.cu", "            c.first.data[r * c.first.stride + i] = value;", "            value *= 1;"),
    ("together: keys are written before they are rotated", ROOM + "attention.cu", "    __syncthreads();\n    if (part < a.parts)", "    if (part < a.parts)"),
    ("together: queries are not rotated", ROOM + "attention.cu", "both(a->n_rows, a->parts + 1, cut);", "both(a->n_rows, a->parts, cut);"),
    ("together: keys take the place of queries that are read", ROOM + "fuse.c", " || cuda_rows_meet(&k->out, &q->inputs[0]) ||", " ||"),
    ("together: a square taken for a gate", ROOM + "fuse.c", "    if (which < 0 || same_rows(&mul->inputs[which], &gelu->out) ||", "    if (which < 0 ||"),
    ("parts: no barrier before warps are joined", ROOM + "split.cu", "        __syncthreads();\n        float most = -INFINITY, total = 0;", "        float most = -INFINITY, total = 0;"),
    ("parts: no barrier before the next head", ROOM + "split.cu", "        lanes_join<LANES>(sums[g]);\n        __syncthreads();\n", "        lanes_join<LANES>(sums[g]);\n"),
    ("parts: heads past a group are written", ROOM + "split.cu", "        if (g >= heads)\n", "        if (g > heads)\n"),
    ("parts: heads past a group are read", ROOM + "split.cu", "(head0 + (g < heads ? g : 0)) * a.head_dim", "(head0 + g) * a.head_dim"),
    ("parts: positions past a part", ROOM + "split.cu", "there |= (p < end ? 1u : 0u) << k;", "there |= 1u << k;"),
    ("parts: positions that nobody wrote", ROOM + "split.cu", "            p = p < end ? p : row.last;\n", ""),
    ("parts: the last part ends where all do", ROOM + "split.cu", "first + each < row.last + 1 ? first + each : row.last + 1", "first + each"),
    ("parts: lanes of other tokens are left out", ROOM + "split.cu", "        lanes_join<LANES>(sums[g]);\n", ""),
    ("parts: sinks are no part of the sum", ROOM + "split.cu", "total = a.sinks ? expf(a.sinks[head] - most) : 0;", "total = 0;"),
    ("parts: one alone is joined", ROOM + "split.cu", "for (uint32_t z = 0; z < parts; z++) {", "for (uint32_t z = 0; z < 1; z++) {"),
    ("parts: those that there are not are joined", ROOM + "split.cu", "parts = (seen + each - 1) / each;", "parts = each ? a.splits : 0;"),
    ("parts: room for one alone", ROOM + "split.cu", "* a->heads * a->splits * (a->head_dim + 2) *", "* a->heads * (a->head_dim + 2) *"),
    # groups of experts
    ("groups: tiles are not waited for", ROOM + "groups.cu", "        async_groups_wait<1>();\n        __syncthreads();\n        tiles_multiply", "        __syncthreads();\n        tiles_multiply"),
    ("groups: no barrier before tiles are multiplied", ROOM + "groups.cu", "        async_groups_wait<1>();\n        __syncthreads();\n        tiles_multiply", "        async_groups_wait<1>();\n        tiles_multiply"),
    ("groups: no barrier before the next tiles", ROOM + "groups.cu", "warp % 2 * 32 * TILE_ROW, sums);\n        __syncthreads();\n", "warp % 2 * 32 * TILE_ROW, sums);\n"),
    ("groups: pairs are not awaited", ROOM + "groups.cu", "        pairs[threadIdx.x] = g.order[lot.first + threadIdx.x];\n    __syncthreads();\n", "        pairs[threadIdx.x] = g.order[lot.first + threadIdx.x];\n"),
    ("groups: rows past a lot", ROOM + "groups.cu", "if (r >= lot.count || c >= g.n_outputs)", "if (c >= g.n_outputs)"),
    ("groups: outputs past the last", ROOM + "groups.cu", "if (r >= lot.count || c >= g.n_outputs)", "if (r >= lot.count)"),
    ("groups: columns past the last are read", ROOM + "groups.cu", "if (r < rows && k < width)", "if (r < rows && k < width + 8)"),
    ("groups: weights past the last are read", ROOM + "groups.cu", "if (r < rows && k < width)", "if (k < width && rows)"),
    ("groups: lots of other panels", ROOM + "groups.cu", "    if (lot.count == 0 || lot.matrix < g.first_matrix ||\n        lot.matrix >= g.first_matrix + g.n_matrices)", "    if (lot.count == 0)"),
    ("groups: lots that nobody fills", ROOM + "groups.cu", "for (uint32_t i = lane; first + i < end; i += WARP) {", "for (uint32_t i = lane; first + i < end && i * GROUP_ROWS < count; i += WARP) {"),
    ("groups: all pairs in one place", ROOM + "groups.cu", "        at += (uint32_t)__popc(mine);\n", ""),
    ("groups: a row's pairs have one input", ROOM + "groups.cu", "g.apart ? pairs[r] : pairs[r] / g.used", "pairs[r] / g.used"),
    ("groups: bias of the slot", ROOM + "groups.cu", "g.bias[(uint64_t)(g.chosen_from + lot.matrix) * g.outputs + output]", "g.bias[(uint64_t)(pair % g.used) * g.outputs + output]"),
    ("groups: bias of another group's expert", ROOM + "groups.cu", "(g.chosen_from + lot.matrix)", "lot.matrix"),
    ("groups: pairs of other groups' experts", ROOM + "groups.c", ".chosen_from = p->pairs.first_matrix,", ".chosen_from = 0,"),
    ("groups: weights that rows take are left out", ROOM + "groups.c", ".counts = g->counts + g->first_matrix,", ".counts = g->counts,"),
    # steps that are kept
    ("kept steps: their tables stay as they were", ROOM + "steps.c", "p->slots == 0 || cuda_slots_fill(s, p->slots, b)", "p->slots == 0 || b"),
    ("kept steps: a room that has moved", ROOM + "memory.c", "    s->moved++;\n", ""),
    ("kept steps: pages past what their table has room for", ROOM + "tables.c", "if (bytes > slot->room.bytes &&", "if (slot->room.bytes == 0 &&"),
    ("kept steps: those of another key", ROOM + "steps.c", "if (p->turn && p->key == key)", "if (p->turn)"),
    ("kept steps: those that could not be kept are not done", ROOM + "steps.c", "        p->refused = true;\n        return false;\n    }\n    p->moved", "        p->refused = true;\n        return true;\n    }\n    p->moved"),
    ("kept steps: one table for all groups", ROOM + "tables.c", "if (slot->taken && (slot->group != k->group || slot->whole != k->whole))", "if (slot->taken && slot->whole != k->whole)"),
    # experts
    ("experts: outputs past the last", ROOM + "experts.cu", "    if (c >= p.outputs)\n        return;\n    gpu_pair", "    gpu_pair"),
    ("experts: inputs past a row", ROOM + "experts.cu", "for (uint32_t i = 0; i < left; i++)", "for (uint32_t i = 0; i < FORMAT_RUN; i++)"),
    ("experts: who is taken is not awaited", ROOM + "experts.cu", "            chosen[k] = (float)expert;\n        __syncwarp();\n", "            chosen[k] = (float)expert;\n"),
    ("experts: one may be taken twice", ROOM + "experts.cu", "if (!taken && (best == n", "if ((best == n"),
    ("experts: rows past the lot", ROOM + "experts.cu", "    if (row >= rows)\n        return;\n    float *to", "    if (row > rows)\n        return;\n    float *to"),
    ("experts: all take the first one's matrix", ROOM + "products.cuh", "at.weight = p.weight + own * p.pairs.bytes;", "at.weight = p.weight;"),
    ("experts: sums have other groups', too", ROOM + "experts.cu", "if (how.count == 0 || (uint32_t)chosen[k] - how.first < how.count)", "if (true)"),
    ("experts: sums begin with nothing", ROOM + "experts.cu", "float sum = base.data ? base.data[blockIdx.x * base.stride + i] : 0;", "float sum = 0;"),
    ("experts: numbers do not rise", ROOM + "experts.cu", "at += chosen[j] < chosen[k];", "at += j < k;"),
    ("experts: bias of the slot", ROOM + "products.cuh", "p.bias[(uint64_t)at.matrix * p.outputs + c]", "p.bias[(uint64_t)at.slot * p.outputs + c]"),
    ("experts: numbers of the row for each pair", ROOM + "decode.cu", "(p.pairs.step == 0 ? pair.row : blockIdx.y)", "(p.pairs.step != 0 ? pair.row : blockIdx.y)"),
    ("experts: outputs past the last, by integers", ROOM + "decode.cu", "            if (lane == 0 && c0 + o < p.outputs)\n                pair_store", "            if (lane == 0)\n                pair_store"),
    ("experts: parts are one matrix", ROOM + "weights.c", "(uint8_t *)w->data + (uint64_t)i * w->part_bytes, e);", "w->data, e);"),
    # bounds
    ("few rows: no bound on outputs", ROOM + "products.cu", "if (lane == 0 && c < p.outputs && r < n)", "if (lane == 0 && r < n)"),
    ("few rows: no bound on rows", ROOM + "products.cu", "if (lane == 0 && c < p.outputs && r < n)", "if (lane == 0 && c < p.outputs)"),
    ("few rows: inputs are read past a row", ROOM + "products.cu", "(r0 + (r < n ? r : 0)) * p.in.stride", "(r0 + r) * p.in.stride"),
    ("few rows: weights are read past their end", ROOM + "products.cu", "uint32_t left = p.inputs - k < FORMAT_RUN ? p.inputs - k : FORMAT_RUN;", "uint32_t left = FORMAT_RUN;"),
    ("tiles: no bound on rows that are read", ROOM + "products.cu", "r0 + own < p.rows && i < left ?", "i < left ?"),
    ("tiles: no bound on outputs' weights", ROOM + "products.cu", "if (c0 + own < p.outputs && left)", "if (left)"),
    ("tiles: no bound on rows that are written", ROOM + "products.cu", "if (r0 + ty + a * 16 < p.rows && c0", "if (c0"),
    ("turned: no bound on outputs", ROOM + "products.cu", "    if (c >= p.outputs)\n        return;\n", ""),
    ("attention: queries are read past a head", ROOM + "attention.cu", "lane + i * WARP < a.head_dim ? query[lane + i * WARP] : 0", "query[lane + i * WARP]"),
    ("attention: keys are read past a head", ROOM + "attention.cu", "            if (lane + i * WARP < a.head_dim)\n                score", "                score"),
    ("attention: results are written past a head", ROOM + "attention.cu", "i < a.value_dim; i += blockDim.x", "i < a.value_dim + 1; i += blockDim.x"),
    ("attention: a token sees the one after it", ROOM + "attention.cu", "p <= row.last; p += ATTEND_WARPS", "p <= row.last + 1; p += ATTEND_WARPS"),
    ("attention: a token does not see itself", ROOM + "attention.cu", "p <= row.last; p += ATTEND_WARPS", "p < row.last; p += ATTEND_WARPS"),
    ("attention: keys and values are written past a token", ROOM + "attention.cu", "i < end * a.head_dim; i += blockDim.x) {\n        float value", "i < end * a.head_dim + WARP; i += blockDim.x) {\n        float value"),
    ("wire: no bound on blocks", ROOM + "rows.cu", "n < width / WIRE; n += blockDim.x", "n <= width / WIRE; n += blockDim.x"),
    ("narrow rows: one element too many", ROOM + "rows.cu", "i < width; i += blockDim.x) {\n        float v = in.data", "i <= width; i += blockDim.x) {\n        float v = in.data"),
    ("rotation: elements that are not turned are left out", ROOM + "rope.cuh", "to[at] = from[at];", "to[at] = 0;"),
    # numbers
    ("attention: sinks are no part of the sum", ROOM + "attention.cu", "all = a.sinks ? expf(a.sinks[head] - most) : 0;", "all = 0;"),
    ("attention: values lie apart from keys always", ROOM + "attention.cu", "kv_at(a, row, a.parts - 1, p)", "kv_at(a, row, 1, p)"),
    ("attention: no soft cap", ROOM + "attention.cu", "        if (a.cap != 0)\n            score = a.cap * tanhf(score / a.cap);\n", ""),
    ("one row of a table for all ids is not known", ROOM + "ops.c", "how->same ? NULL : tensor_row(&in[0], 0)", "tensor_row(&in[0], 0)"),
    # sampling
    ("sampling: no barrier between logits and their changes", ROOM + "sampling.cu", "            c[i] = __float_as_uint(row[i]);\n        __syncthreads();\n", "            c[i] = __float_as_uint(row[i]);\n"),
    ("sampling: penalties and bias at once", ROOM + "sampling.cu", "    __syncthreads();\n    changes += a->n_seen;\n", "    changes += a->n_seen;\n"),
    ("sampling: any of the greatest", ROOM + "sampling.cu", "atomicMin(&b->token, at);", "b->token = at;"),
    ("sampling: roundings in doubt are let be", ROOM + "sampling.cu", "        doubts += least != (float)(e * (1 + WEIGHT_DOUBT)) && e > 0;\n", "        (void)least;\n"),
    ("sampling: a draw at an edge is let be", ROOM + "sampling.cuh", "    return (before <= 0 || target - before > doubt) && after - target > doubt;", "    return after > before;"),
    ("sampling: no barrier before tallies are taken", ROOM + "sampling.cuh", "    __syncthreads();\n    tallies_take(", "    tallies_take("),
    ("sampling: tallies are not cleared", ROOM + "sampling.cuh", "        b->tally[i] = 0;\n    __syncthreads();\n", "        b->tally[i] = b->tally[i];\n    __syncthreads();\n"),
    ("sampling: the first of equal weights", ROOM + "sampling.cuh", "        if (vote && seen + place == nth)", "        if (vote && seen + place == 0)"),
    ("sampling: one row of counts for all tiles", ROOM + "sampling.cuh", "b->counts[tile % 2]", "b->counts[0]"),
    ("sampling: a row's end is not looked at", ROOM + "sampling.cuh", "        uint64_t one = i < n ? c[i] : 0;", "        uint64_t one = c[i];"),
    ("sampling: top-k before top-p is passed over", ROOM + "sampling.cu", "        left = b->fall.found ? b->fall.after : all;\n", "        left = all;\n"),
    ("sampling: min-p is passed over", ROOM + "sampling.cu", "        kept = mass_at_least(b, c, n, min_p);\n", "        kept = kept + 0 * min_p;\n"),
    ("sampling: a pivot stays where it was put", ROOM + "sampling.cu", "            if (threadIdx.x == 0)\n                candidates_swap(middle, last);\n            __syncthreads();\n            return n;", "            return n;"),
    ("sampling: rows that nobody samples from stay on the GPU", ROOM + "sampling.cu", "    for (uint32_t i = threadIdx.x; b.token == UINT32_MAX && i < p.width;", "    for (uint32_t i = threadIdx.x; b.ask.wanted && b.token == UINT32_MAX && i < p.width;"),
    ("sampling: the next rows' room is the first ones'", ROOM + "sampling.c", "            .tokens = room.tokens + r,", "            .tokens = room.tokens,"),
    # memory
    ("memory: parts begin where others do", ROOM + "arena.c", "i ? a->parts[i - 1].at + a->parts[i - 1].bytes : 0", "i ? a->parts[i - 1].at + CUDA_STEP : 0"),
    ("memory: what is given back stays taken", ROOM + "arena.c", "        vector_remove(a->parts, a->n, i);\n", ""),
    ("memory: a gap that is too small", ROOM + "arena.c", "        if (room < whole)\n            continue;\n", "        if (room + CUDA_STEP < whole)\n            continue;\n"),
    ("memory: the rest of a step is not counted", ROOM + "memory.c", "    uint64_t whole = cuda_steps_bytes(bytes);\n    if (!memory_count", "    uint64_t whole = bytes;\n    if (!memory_count"),
    ("memory: more than a device has", ROOM + "memory.c", "+ bytes <= d->limit_bytes)", "+ bytes <= d->facts.total_bytes)"),
    ("memory: what a stream reads goes before it", ROOM + "cuda.c", "        gpu_stream_wait(s->stream); /* what it reads and writes goes next */\n", "        (void)s;\n"),
    ("host: a table that is too large", ROOM + "weights.c", "bytes <= cuda_host_free(d);", "bytes / 2 <= cuda_host_free(d);"),
    ("host: its rows are left where the file has them", ROOM + "weights.c", "    if (from)\n        memcpy(to, from, bytes);\n", "    if (from)\n        memset(to, 0, bytes);\n"),
    ("host: what is given back stays counted", ROOM + "memory.c", "    gpu_host_free(p);\n    atomic_fetch_sub(&d->host_used_bytes, bytes);\n", "    gpu_host_free(p);\n    atomic_fetch_sub(&d->host_used_bytes, bytes / 2);\n"),
    ("host: a table's end is left out", ROOM + "memory.c", "gpu_host_alloc(out, bytes) == 0", "gpu_host_alloc(out, bytes / 64) == 0"),
    ("host: small weights stay the GPU's", ROOM + "weights.c", "bytes <= d->small_bytes)", "bytes + 1 == 0)"),
    # parts of a GPU
    ("shares: streams of the whole GPU", ROOM + "cuda.c", "    return d->part ? gpu_part_stream_create(d->part, out) : gpu_stream_create(out);", "    return d->part ? gpu_stream_create(out) : gpu_stream_create(out);"),
    ("shares: all are the first one", ROOM + "green.cu", "driver.describe(&text, c->parts + first, (unsigned)count)", "driver.describe(&text, c->parts + 0 * first, (unsigned)count)"),
    ("shares: one part, whatever is asked for", ROOM + "green.cu", "driver.describe(&text, c->parts + first, (unsigned)count)", "driver.describe(&text, c->parts + first, count ? 1u : 0u)"),
    ("shares: multiprocessors that no step divides", ROOM + "green.cu", "out->each = out->all / cut / step * step;", "out->each = out->all / cut;"),
    ("shares: fewer multiprocessors than the driver gives", ROOM + "green.cu", "    out->each = out->each < out->least ? 0 : out->each;\n", ""),
    # kernels that begin before others are over
    ("early: decode reads rows before they are there", ROOM + "decode.cu", "    if (!PAIRS) {\n        earlier_wait();", "    if (!PAIRS) {"),
    ("early: decode in float32 reads rows before they are there", ROOM + "decode.cu", "    plain_load(ahead, from, lane * each, each, p.inputs);\n    earlier_wait();\n", "    plain_load(ahead, from, lane * each, each, p.inputs);\n"),
    ("early: rows are made integers before they are there", ROOM + "decode.cu", "    earlier_wait();\n    if (block >= n)", "    if (block >= n)"),
    ("early: experts are read before they are chosen", ROOM + "decode.cu", "        earlier_wait(); /* what was chosen says which weights */\n", ""),
    ("early: what is written is added to before it is there", ROOM + "decode.cu", "    earlier_wait();\n    const decode_result result = result_find<ROWS>(place, p.rows, c0);", "    const decode_result result = result_find<ROWS>(place, p.rows, c0);\n    earlier_wait();"),
    ("early: blocks past the last do not wait", ROOM + "decode.cu", "        earlier_wait();\n        return;\n    }\n    if (PAIRS) {", "        return;\n    }\n    if (PAIRS) {"),
    ("early: a norm of what is not there yet", ROOM + "rows.cu", "weight[k] = i < n.part ? *(const float4 *)(n.weight + i) : float4{};\n    }\n    earlier_wait();", "weight[k] = i < n.part ? *(const float4 *)(n.weight + i) : float4{};\n    }"),
    ("early: keys are written before they are there", ROOM + "attention.cu", "part = blockIdx.y;\n    earlier_wait();", "part = blockIdx.y;"),
    ("early: parts of attention are joined before they are there", ROOM + "split.cu", "__global__ void split_join_kernel(gpu_attention a)\n{\n    earlier_wait();", "__global__ void split_join_kernel(gpu_attention a)\n{"),
    ("together: products of which one writes what another reads", ROOM + "matmul.c", "fits && calls_are_apart(calls[k], calls[i]) && calls_are_apart(calls[i], calls[k]);", "fits && (calls_are_apart(calls[k], calls[i]) || true);"),
    ("together: the second matrix begins where the first ends", ROOM + "products.cuh", "blockIdx.x - before", "blockIdx.x"),
    ("attention: joined rows lie where parts are", ROOM + "kv.c", "a->parts_found = (float *)(void *)(room + made);", "a->parts_found = (float *)(void *)room;"),
    ("expansion: lanes do not wait for each other's elements", ROOM + "expand.cu", "    __syncwarp();\n    uint32_t elements", "    uint32_t elements"),
    ("norms: a thread's second four are its first", ROOM + "rows.cu", "        x[k] = there ? *(const float4 *)(in + i) : float4{};", "        x[k] = there ? *(const float4 *)(in + i % (blockDim.x * WIDE)) : float4{};"),
    # waits
    ("a table of a batch is filled while the GPU reads it", ROOM + "tables.c", "cuda_note(s, gpu_event_wait(t->read));", "cuda_note(s, 0);"),
    ("a table that is read is not noted", ROOM + "tables.c", "    cuda_note(s, gpu_event_record(t->read, s->stream));\n", ""),
    ("an upload is not waited for", ROOM + "memory.c", "    rc = rc ? rc : gpu_stream_wait(d->load_stream);\n", ""),
    ("a stream's end is not waited for", ROOM + "cuda.c", "    rc = rc ? rc : gpu_stream_wait(s->stream);\n    rc = failed", "    rc = failed"),
    ("an event is not waited for", ROOM + "cuda.c", "    rc = rc ? rc : gpu_event_wait(v->event);\n    rc = v->failed", "    rc = v->failed"),
    ("somebody is told before the batch is over", ROOM + "watch.c", "        gpu_event_wait(v->event);\n        event_tell", "        event_tell"),
    ("what came from the GPU is not brought where it belongs", ROOM + "cuda.c", "        cuda_staged_land(v->stream, v->landings, rc == 0);\n", "        (void)rc;\n"),
    ("what came first is brought last", ROOM + "staging.c", "g->turn < first->turn", "g->turn > first->turn"),
    ("a staged room is filled while the GPU reads it", ROOM + "staging.c", "    if (g->going && gpu_event_done(g->read) != GPU_BUSY)\n        g->going = false;\n", "    g->going = false;\n"),
    ("what has not landed yet is sent", ROOM + "staging.c", "    if (staged_covers(s, from))\n        staged_settle(s);\n", "    (void)staged_covers(s, from);\n"),
    # failures
    ("an old driver is let be", ROOM + "cuda.c", "    if (driver / 1000 < runtime / 1000) {", "    if (driver < 0) {"),
    ("a stream forgets that it failed", ROOM + "cuda.c", "    rc = failed ? failed : rc;\n    cuda_staged_land(s", "    rc = failed ? 0 : rc;\n    cuda_staged_land(s"),
    ("an event forgets that the work failed", ROOM + "cuda.c", "    rc = v->failed ? v->failed : rc;\n", "    rc = v->failed ? 0 : rc;\n"),
]


def found_by(folder):
    """What the tests say that fail, in a few words, or None: all passed."""
    for one in TESTS:
        try:
            done = subprocess.run([one], cwd=folder, capture_output=True, text=True, timeout=900)
        except subprocess.TimeoutExpired:
            return "no end"
        if done.returncode:
            said = done.stdout + done.stderr
            told = re.search(r"^cuda_on_cpu: (.*)$", said, re.M) or re.search(r"\[  FAILED  \] (\w+)", said)
            return told.group(1) if told else f"exit status {done.returncode}"
    return None


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [f for f in FAULTS if not words or any(w in f[0] or w in f[1] for w in words)]
    sys.exit(faults.run(chosen, "cuda_mutations", TESTS, found_by, False))
