/* Which bytes a kernel may touch: device memory by allocation and by what was written, shared
 * memory by who came before. The compiler's hooks for ThreadSanitizer arrive here. */
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_on_cpu_int.h"

namespace cuda_on_cpu
{

kernel_now now;

static const size_t space_bytes = (size_t)1 << 34, granule = 256;
enum : uint8_t { STATE_NONE, STATE_RAW, STATE_WRITTEN };

/* Who wrote a word of device memory. */
struct word {
    uint32_t launch;
    uint32_t block;
    uint64_t epoch;
    int16_t thread;
    uint16_t stream;
    uint32_t warp_epoch;
};
/* Who was at a word of shared memory since the last barrier. */
struct shared_word {
    uint64_t epoch;
    uint32_t written_in; /* the block that wrote it */
    int16_t writer, reader;
    uint32_t write_warp_epoch, read_warp_epoch;
    bool readers_many_warps, readers_many;
};

struct allocation {
    size_t bytes, room; /* room: of an arena, whose parts alone may be touched; 0: it is none */
    size_t extent() const { return room ? room : bytes; }
};
static struct {
    uint8_t *base, *state;
    word *words;
    size_t limit, used, high;
    std::map<size_t, allocation> taken; /* by offset */
    std::map<size_t, size_t> parts;     /* of arenas: bytes by offset */
    bool open;
    uint8_t *data, *data_end;         /* what the kernels' object may write: static shared memory */
    const uint8_t *fixed, *fixed_end; /* all of that object */
    shared_word *shared, *dynamic;
} memory;

/* ---- the end ---- */

static void line_print(const void *pc)
{
    Dl_info in;
    char command[512], line[512] = "";
    const char *address = (const char *)pc - 1;
    if (!pc || !dladdr(address, &in) || !in.dli_fname)
        return;
    snprintf(command, sizeof command, "addr2line -s -i -e '%s' 0x%zx", in.dli_fname,
             (size_t)(address - (const char *)in.dli_fbase));
    unsetenv("LD_PRELOAD");
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strstr(line, "cuda_runtime.h")) {
            fprintf(stderr, ", %s", strtok(line, "\n"));
            break;
        }
    if (f)
        pclose(f);
}

void die(const void *pc, const char *format, ...)
{
    va_list args;
    const cuda_on_cpu_place &at = cuda_on_cpu_here;
    va_start(args, format);
    fputs("cuda_on_cpu: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    if (now.kernel)
        fprintf(stderr, ": kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", now.kernel, at.block.x,
                at.block.y, at.block.z, at.thread.x, at.thread.y, at.thread.z);
    now.on = false;
    line_print(pc);
    fputs("\n", stderr);
    fflush(stderr);
    _exit(86);
}

static void fault_caught(int, siginfo_t *info, void *)
{
    const uint8_t *at = (const uint8_t *)info->si_addr;
    if (memory.base && at >= memory.base && at < memory.base + space_bytes) {
        static const char text[] = "cuda_on_cpu: the host touches device memory\n";
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
            _exit(87);
        _exit(86);
    }
    signal(SIGSEGV, SIG_DFL); /* and again */
}

/* ---- allocations ---- */

static int object_find(dl_phdr_info *info, size_t, void *)
{
    const uint8_t *self = (const uint8_t *)&memory;
    const uint8_t *first = nullptr, *end = nullptr;
    bool here = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        uint8_t *from = (uint8_t *)info->dlpi_addr + p.p_vaddr, *to = from + p.p_memsz;
        if (p.p_type != PT_LOAD)
            continue;
        first = !first || from < first ? from : first;
        end = to > end ? to : end;
        if (self >= from && self < to) {
            here = true;
            memory.data = from;
            memory.data_end = to;
        }
    }
    memory.fixed = first;
    memory.fixed_end = end;
    return here;
}

static void *space_map(size_t bytes, int rights)
{
    void *p = mmap(nullptr, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void memory_limit(size_t bytes)
{
    if (!memory.base) {
        struct sigaction action = {};
        action.sa_sigaction = fault_caught;
        action.sa_flags = SA_SIGINFO;
        memory.base = (uint8_t *)space_map(space_bytes, PROT_NONE);
        memory.state = (uint8_t *)space_map(space_bytes, PROT_READ | PROT_WRITE);
        memory.words = (word *)space_map(space_bytes / 4 * sizeof(word), PROT_READ | PROT_WRITE);
        dl_iterate_phdr(object_find, nullptr);
        size_t n = (size_t)(memory.data_end - memory.data) / 4 + 1;
        memory.shared = (shared_word *)space_map(n * sizeof(shared_word), PROT_READ | PROT_WRITE);
        now.dynamic = (uint8_t *)space_map(1 << 18, PROT_READ | PROT_WRITE);
        memory.dynamic =
            (shared_word *)space_map((1 << 16) * sizeof(shared_word), PROT_READ | PROT_WRITE);
        if (!memory.base || !memory.state || !memory.words || !memory.shared || !memory.dynamic)
            die(nullptr, "this box has no room for device memory");
        sigaction(SIGSEGV, &action, nullptr);
    }
    memory.limit = bytes;
}

size_t memory_limit_bytes()
{
    return memory.limit;
}

size_t memory_free_bytes()
{
    return memory.limit > memory.used ? memory.limit - memory.used : 0;
}

/* The first gap that has room, with a granule of nobody's before and behind. */
void *memory_take(size_t bytes, size_t room)
{
    const allocation made = {bytes, room};
    size_t at = granule, whole = (made.extent() + granule - 1) / granule * granule;
    if (bytes > memory_free_bytes())
        return nullptr;
    for (const auto &one : memory.taken) {
        if (one.first >= at + whole + granule)
            break;
        at = (one.first + one.second.extent() + granule - 1) / granule * granule + granule;
    }
    if (at + whole + granule > space_bytes)
        return nullptr;
    memory.taken[at] = made;
    memory.used += bytes;
    memory.high = !room && at + whole > memory.high ? at + whole : memory.high;
    if (!room)
        memset(memory.state + at, STATE_RAW, bytes);
    return memory.base + at;
}

static void part_end(std::map<size_t, size_t>::iterator part)
{
    memset(memory.state + part->first, STATE_NONE, part->second);
    memory.parts.erase(part);
}

bool memory_give(void *p)
{
    size_t at = (size_t)((uint8_t *)p - memory.base);
    auto one = memory.taken.find(at);
    if (one == memory.taken.end())
        return false;
    for (auto part = memory.parts.lower_bound(at);
         part != memory.parts.end() && part->first < at + one->second.room;
         part = memory.parts.lower_bound(at))
        part_end(part);
    if (!one->second.room)
        memset(memory.state + at, STATE_NONE, one->second.bytes);
    memory.used -= one->second.bytes;
    memory.taken.erase(one);
    return true;
}

void memory_part(void *p, size_t bytes, bool taken)
{
    size_t at = (size_t)((uint8_t *)p - memory.base);
    auto part = memory.parts.find(at);
    if (taken == (part != memory.parts.end()) || (!taken && part->second != bytes))
        die(nullptr, "a part of an arena is taken twice, or given back as it was not taken");
    if (!taken) {
        part_end(part);
        return;
    }
    if (memchr(memory.state + at, STATE_RAW, bytes) ||
        memchr(memory.state + at, STATE_WRITTEN, bytes))
        die(nullptr, "a part of an arena has bytes of another");
    memory.parts[at] = bytes;
    memory.high = at + bytes > memory.high ? at + bytes : memory.high;
    memset(memory.state + at, STATE_RAW, bytes);
}

bool memory_is_device(const void *p)
{
    return (const uint8_t *)p >= memory.base && (const uint8_t *)p < memory.base + space_bytes;
}

void memory_open(bool open)
{
    size_t bytes = (memory.high + 4095) / 4096 * 4096;
    if (bytes)
        mprotect(memory.base, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    memory.open = open;
}

/* ---- device memory ---- */

/* Where an address lies, for people. */
static const char *address_text(const uint8_t *p)
{
    static char text[160];
    size_t at = (size_t)(p - memory.base);
    auto next = memory.taken.upper_bound(at);
    if (next == memory.taken.begin()) {
        snprintf(text, sizeof text, "before all allocations");
        return text;
    }
    auto one = std::prev(next);
    size_t from = one->first, bytes = one->second.bytes;
    auto part = memory.parts.upper_bound(at);
    if (one->second.room && part != memory.parts.begin() && std::prev(part)->first >= from) {
        from = std::prev(part)->first;
        bytes = std::prev(part)->second;
    }
    if (at - from < bytes)
        snprintf(text, sizeof text, "byte %zu of an allocation of %zu bytes", at - from, bytes);
    else
        snprintf(text, sizeof text, "%zu bytes past the end of an allocation of %zu bytes",
                 at - from - bytes, bytes);
    return text;
}

static void device_bounds(const uint8_t *p, size_t n, bool writes, const void *pc)
{
    const uint8_t *state = memory.state + (p - memory.base);
    for (size_t i = 0; i < n; i++) {
        if (state[i] == STATE_NONE)
            die(pc, "out of bounds: %s of %zu bytes, %s", writes ? "write" : "read", n,
                address_text(p + i));
        if (!writes && state[i] == STATE_RAW)
            die(pc, "read of device memory that nobody has written, %s", address_text(p + i));
    }
}

/* Whether what a thread of this launch did comes before what the one that runs does. */
static bool word_is_ordered(const word &w)
{
    if (w.launch != now.launch || (w.block == now.block && w.thread == now.thread))
        return true;
    if (w.block != now.block)
        return false;
    return w.epoch != now.epoch ||
           (w.thread / 32 == now.thread / 32 && w.warp_epoch != now.warp_epochs[now.thread / 32]);
}

static void device_touch(const uint8_t *p, size_t n, bool writes, bool atomic, const void *pc)
{
    device_bounds(p, n, writes, pc);
    bool over = earlier_are_over();
    if (writes && !over)
        die(pc, "write before those of earlier kernels are over, %s", address_text(p));
    size_t at = (size_t)(p - memory.base), end = (at + n + 3) / 4;
    for (size_t i = at / 4; i < end; i++) {
        word &w = memory.words[i];
        if (!over && !launch_is_over(w.stream, w.launch))
            die(pc, "read of what a kernel has written, which may not be over, %s",
                address_text(p));
        if (atomic) {
            w.launch = 0;
            continue;
        }
        if (n >= 4 && !word_is_ordered(w))
            die(pc, "race in device memory: %s of what thread %d of %s block wrote, %s",
                writes ? "write" : "read", w.thread, w.block == now.block ? "this" : "another",
                address_text(p));
        if (writes)
            w = {now.launch,          now.block,          now.epoch,
                 (int16_t)now.thread, now.stream->number, now.warp_epochs[now.thread / 32]};
    }
    if (writes)
        memset(memory.state + at, STATE_WRITTEN, n);
}

void memory_check(const char *what, const void *at, size_t n, bool writes)
{
    const uint8_t *p = (const uint8_t *)at;
    if (n == 0)
        return;
    if (!memory_is_device(p))
        die(nullptr, "%s: an address of the host stands where the device's should", what);
    const uint8_t *state = memory.state + (p - memory.base);
    if (memchr(state, STATE_NONE, n))
        die(nullptr, "%s of %zu bytes: out of bounds, %s", what, n,
            address_text(memory.base +
                         ((const uint8_t *)memchr(state, STATE_NONE, n) - memory.state)));
    if (!writes && memchr(state, STATE_RAW, n))
        die(nullptr, "%s of %zu bytes: nobody has written %s", what, n,
            address_text(memory.base +
                         ((const uint8_t *)memchr(state, STATE_RAW, n) - memory.state)));
}

void memory_written(const void *p, size_t n)
{
    size_t at = (size_t)((const uint8_t *)p - memory.base);
    memset(memory.state + at, STATE_WRITTEN, n);
    for (size_t i = at / 4; i < (at + n + 3) / 4; i++)
        memory.words[i].launch = 0;
}

/* ---- shared memory ---- */

static bool shared_ordered(int other, uint32_t warp_epoch)
{
    return other == now.thread ||
           (other / 32 == now.thread / 32 && warp_epoch != now.warp_epochs[now.thread / 32]);
}

static void shared_write(shared_word &w, const void *pc)
{
    bool reads_known =
        w.reader < 0 || (!w.readers_many_warps &&
                         (w.readers_many ? w.reader / 32 == now.thread / 32 &&
                                               w.read_warp_epoch != now.warp_epochs[now.thread / 32]
                                         : shared_ordered(w.reader, w.read_warp_epoch)));
    if (w.writer >= 0 && !shared_ordered(w.writer, w.write_warp_epoch))
        die(pc, "race in shared memory: write of what thread %d wrote, without a barrier between",
            w.writer);
    if (!reads_known)
        die(pc, "race in shared memory: write of what thread %d read, without a barrier between",
            w.reader);
    w.writer = (int16_t)now.thread;
    w.write_warp_epoch = now.warp_epochs[now.thread / 32];
    w.written_in = now.block;
}

static void shared_read(shared_word &w, const void *pc)
{
    if (w.written_in != now.block)
        die(pc, "read of shared memory that no thread of the block has written");
    if (w.writer >= 0 && !shared_ordered(w.writer, w.write_warp_epoch))
        die(pc, "race in shared memory: read of what thread %d wrote, without a barrier between",
            w.writer);
    if (w.reader >= 0 && w.reader != now.thread) {
        w.readers_many = true;
        w.readers_many_warps = w.readers_many_warps || w.reader / 32 != now.thread / 32;
    }
    w.reader = (int16_t)now.thread;
    w.read_warp_epoch = now.warp_epochs[now.thread / 32];
}

static void shared_touch(shared_word *words, size_t at, size_t n, bool writes, bool atomic,
                         const void *pc)
{
    for (size_t i = at / 4; i < (at + n + 3) / 4; i++) {
        shared_word &w = words[i];
        if (w.epoch != now.epoch) {
            w.epoch = now.epoch;
            w.writer = w.reader = -1;
            w.readers_many = w.readers_many_warps = false;
        }
        if (atomic)
            w.written_in = now.block;
        else if (writes)
            shared_write(w, pc);
        else
            shared_read(w, pc);
    }
}

/* ---- every access of a kernel ---- */

void touch(const void *at, size_t n, bool writes, const void *pc, bool atomic)
{
    const uint8_t *p = (const uint8_t *)at;
    if (!now.on || !runs_kernels || (p >= now.stacks && p < now.stacks_end))
        return;
    if (p >= memory.base && p < memory.base + space_bytes)
        device_touch(p, n, writes, atomic, pc);
    else if (p >= now.dynamic && p < now.dynamic_end)
        shared_touch(memory.dynamic, (size_t)(p - now.dynamic), n, writes, atomic, pc);
    else if (p == (const uint8_t *)&cuda_on_cpu_here ||
             (p >= (const uint8_t *)&cuda_on_cpu_here &&
              p < (const uint8_t *)(&cuda_on_cpu_here + 1)))
        return;
    else if (p >= memory.data && p < memory.data_end && n <= 16)
        shared_touch(memory.shared, (size_t)(p - memory.data), n, writes, atomic, pc);
    else if (host_is_pinned(p, n))
        return; /* the GPU reaches it by itself */
    else if (p >= now.dynamic && p < now.dynamic + (1 << 18))
        die(pc,
            "out of bounds: %s of %zu bytes, past the end of %zu bytes of dynamic shared memory",
            writes ? "write" : "read", n, (size_t)(now.dynamic_end - now.dynamic));
    else if (writes || !((p >= now.closure && p < now.closure_end) ||
                         (p >= memory.fixed && p < memory.fixed_end)))
        die(pc, "%s of the host's memory", writes ? "write" : "read");
}

} // namespace cuda_on_cpu

using cuda_on_cpu::touch;

void cuda_on_cpu_atomic(void *at, size_t bytes)
{
    touch(at, bytes, true, __builtin_return_address(0), true);
}

/* What the compiler calls. */
#define PC __builtin_return_address(0)
#define ACCESS(n)                                                                                  \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        touch(p, n, false, PC);                                                                    \
    }                                                                                              \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        touch(p, n, true, PC);                                                                     \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        touch(p, n, false, PC);                                                                    \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        touch(p, n, true, PC);                                                                     \
    }                                                                                              \
    void __tsan_volatile_read##n(void *) {}                                                        \
    void __tsan_volatile_write##n(void *) {}                                                       \
    void __tsan_unaligned_volatile_read##n(void *) {}                                              \
    void __tsan_unaligned_volatile_write##n(void *) {}

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *p, size_t n)
{
    touch(p, n, false, PC);
}
void __tsan_write_range(void *p, size_t n)
{
    touch(p, n, true, PC);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
}
