/* AMX on a CPU that has none: the instructions as they were compiled are caught where the CPU
 * refuses them (SIGILL), taken apart, and done here, as Intel's Software Developer's Manual says
 * (volume 2, LDTILECFG to TILEZERO, TDPBSSD and its kin). What the manual forbids ends the test.
 *
 * Known are the ones with 64-bit registers as addresses that kernels use; state is a thread's. */
#ifndef HP_TESTS_AMX_EMULATOR_H
#define HP_TESTS_AMX_EMULATOR_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "agent/backend/cpu/amx.h"

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

struct amx_tile {
    int rows, row_bytes; /* 0: not configured */
    uint8_t bytes[AMX_ROWS][AMX_ROW_BYTES];
};

static _Thread_local struct {
    bool configured;
    struct amx_tile tiles[AMX_TILES];
    size_t dots; /* products so far, of all configurations */
} amx;

static void amx_refuse(const char *why)
{
    fprintf(stderr, "AMX: %s\n", why);
    abort();
}

static struct amx_tile *amx_tile_of(unsigned n)
{
    if (!amx.configured || n >= AMX_TILES || amx.tiles[n].rows == 0)
        amx_refuse("a tile that is not configured");
    return &amx.tiles[n];
}

static void amx_configure(const uint8_t *config)
{
    static const uint8_t none[14];
    if (config[0] != 1 || config[1] != 0 || memcmp(config + 2, none, sizeof none) != 0)
        amx_refuse("another palette, a row to go on with, or reserved bytes");
    memset(amx.tiles, 0, sizeof amx.tiles);
    for (int i = 0; i < 16; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, config + 16 + 2 * i, sizeof row_bytes);
        int rows = config[48 + i];
        if (rows > AMX_ROWS || row_bytes > AMX_ROW_BYTES || (rows == 0) != (row_bytes == 0) ||
            (i >= AMX_TILES && rows))
            amx_refuse("a tile of a size that there is not");
        if (i < AMX_TILES) {
            amx.tiles[i].rows = rows;
            amx.tiles[i].row_bytes = row_bytes;
        }
    }
    amx.configured = true;
}

static void amx_move(struct amx_tile *t, uint8_t *memory, uint64_t stride, bool load)
{
    if (load)
        memset(t->bytes, 0, sizeof t->bytes);
    for (int r = 0; r < t->rows; r++, memory += stride) {
        if (load)
            memcpy(t->bytes[r], memory, (size_t)t->row_bytes);
        else
            memcpy(memory, t->bytes[r], (size_t)t->row_bytes);
    }
}

static int32_t amx_byte(uint8_t b, bool is_signed)
{
    return is_signed ? (int8_t)b : b;
}

/* c += a * b, of which `a` has rows of four bytes, and `b` such fours side by side. */
static void amx_dot(struct amx_tile *c, const struct amx_tile *a, const struct amx_tile *b,
                    bool a_signed, bool b_signed)
{
    if (c == a || c == b || a == b)
        amx_refuse("a product with one register twice");
    if (c->rows != a->rows || c->row_bytes != b->row_bytes || a->row_bytes != 4 * b->rows ||
        c->row_bytes % 4)
        amx_refuse("a product of tiles that do not fit");
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            uint32_t sum;
            memcpy(&sum, c->bytes[m] + 4 * n, sizeof sum);
            for (int k = 0; k < b->rows; k++)
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)(amx_byte(a->bytes[m][4 * k + i], a_signed) *
                                      amx_byte(b->bytes[k][4 * n + i], b_signed));
            memcpy(c->bytes[m] + 4 * n, &sum, sizeof sum);
        }
    memset(c->bytes[c->rows], 0, (size_t)(AMX_ROWS - c->rows) * AMX_ROW_BYTES);
    amx.dots++;
}

/* ---- instructions ---- */

/* A register as instructions number it. */
static uint64_t amx_register(const ucontext_t *u, unsigned n)
{
    static const int at[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[at[n]];
}

/* One with a prefix of three bytes (VEX), map 0F38, 128 bits. */
struct amx_instruction {
    const uint8_t *next; /* behind what was read */
    unsigned prefix, opcode, mode, reg, rm, third;
    bool x, b; /* index and base are of the upper eight registers */
};

enum { AMX_NONE, AMX_66, AMX_F3, AMX_F2 };

static bool amx_take_apart(const uint8_t *code, struct amx_instruction *out)
{
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84))
        return false;
    *out = (struct amx_instruction){.next = code + 5,
                                    .prefix = code[2] & 3,
                                    .opcode = code[3],
                                    .mode = code[4] >> 6,
                                    .reg = (code[4] >> 3 & 7) | (code[1] & 0x80 ? 0 : 8),
                                    .rm = code[4] & 7,
                                    .third = ~code[2] >> 3 & 15,
                                    .x = !(code[1] & 0x40),
                                    .b = !(code[1] & 0x20)};
    return true;
}

static uint8_t *amx_pointer(uint64_t address)
{
    return (uint8_t *)(uintptr_t)address;
}

/* Base, index times its scale, and what is added; *stride is the index times its scale. */
static uint8_t *amx_address(const ucontext_t *u, struct amx_instruction *i, uint64_t *stride)
{
    unsigned base = i->rm | (i->b ? 8u : 0);
    int32_t more = 0;
    *stride = 0;
    if (i->rm == 4) {
        uint8_t sib = *i->next++;
        unsigned index = (sib >> 3 & 7) | (i->x ? 8u : 0);
        base = (sib & 7) | (i->b ? 8u : 0);
        if (index != 4)
            *stride = amx_register(u, index) << (sib >> 6);
    }
    if (i->mode == 0 && (base & 7) == 5)
        amx_refuse("an address without a base");
    if (i->mode == 1)
        more = (int8_t)*i->next++;
    if (i->mode == 2) {
        memcpy(&more, i->next, sizeof more);
        i->next += sizeof more;
    }
    return amx_pointer(amx_register(u, base) + (uint64_t)(int64_t)more);
}

static bool amx_do(const ucontext_t *u, struct amx_instruction *i)
{
    uint64_t stride;
    if (i->opcode == 0x49 && i->mode == 3 && i->prefix == AMX_F2) {
        memset(amx_tile_of(i->reg)->bytes, 0, sizeof amx.tiles->bytes);
    } else if (i->opcode == 0x49 && i->mode == 3 && i->prefix == AMX_NONE) {
        amx.configured = false;
    } else if (i->opcode == 0x49 && i->mode != 3 && i->prefix == AMX_NONE && i->reg == 0) {
        amx_configure(amx_address(u, i, &stride));
    } else if (i->opcode == 0x4b && i->mode != 3 && i->rm == 4 &&
               (i->prefix == AMX_F2 || i->prefix == AMX_F3)) {
        uint8_t *memory = amx_address(u, i, &stride);
        amx_move(amx_tile_of(i->reg), memory, stride, i->prefix == AMX_F2);
    } else if (i->opcode == 0x5e && i->mode == 3) {
        amx_dot(amx_tile_of(i->reg), amx_tile_of(i->rm), amx_tile_of(i->third),
                i->prefix == AMX_F2 || i->prefix == AMX_F3,
                i->prefix == AMX_F2 || i->prefix == AMX_66);
    } else {
        return false;
    }
    return true;
}

static void amx_caught(int which, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    struct amx_instruction i;
    (void)info;
    if (!amx_take_apart(amx_pointer((uint64_t)u->uc_mcontext.gregs[REG_RIP]), &i) ||
        !amx_do(u, &i)) {
        signal(which, SIG_DFL); /* it is none of ours, and comes again */
        return;
    }
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)i.next;
}

/* From here on the process has AMX. False: the CPU has it itself. */
static inline bool amx_emulate(void)
{
    struct sigaction a = {.sa_sigaction = amx_caught, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (amx_is_usable())
        return false;
    sigaction(SIGILL, &a, NULL);
    return true;
}

#endif
