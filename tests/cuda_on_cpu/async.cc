/* Copies to shared memory that a kernel's threads wait for by groups. Some arrive only then, so that
 * who does not wait reads what was there before, others at once, so that who still reads what was
 * there is found: as the seed has it. */
#include <vector>

#include "cuda_on_cpu_int.h"

namespace cuda_on_cpu
{

struct async_copy {
    void *to;
    const void *from;
    size_t bytes;
    int group;
    const void *pc;
};
static std::vector<async_copy> copies[1024];
static int groups[1024];

void copies_forget(int threads)
{
    for (int i = 0; i < threads; i++) {
        copies[i].clear();
        groups[i] = 0;
    }
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void cuda_on_cpu_copy_async(void *shared, const void *global, size_t bytes)
{
    const void *pc = __builtin_return_address(0);
    if ((uintptr_t)shared % bytes || (uintptr_t)global % bytes)
        die(pc, "a copy of %zu bytes from or to an address that is no multiple of that", bytes);
    touch(global, bytes, false, pc);
    if (draw(2)) {
        touch(shared, bytes, true, pc);
        memcpy(shared, global, bytes);
        return;
    }
    copies[now.thread].push_back({shared, global, bytes, groups[now.thread], pc});
}

void cuda_on_cpu_copy_group_end()
{
    groups[now.thread]++;
}

void cuda_on_cpu_copy_groups_wait(int but)
{
    auto &own = copies[now.thread];
    size_t kept = 0;
    for (size_t i = 0; i < own.size(); i++) {
        if (own[i].group >= groups[now.thread] - but) {
            own[kept++] = own[i];
            continue;
        }
        touch(own[i].to, own[i].bytes, true, own[i].pc);
        memcpy(own[i].to, own[i].from, own[i].bytes);
    }
    own.resize(kept);
}
