/* How soon a thread runs that has something to do while another one has its core. One that carries
 * bytes and takes next to no time asks for short turns: Linux (6.12 and later) then lets it on at
 * once, where it would wait up to 4 ms for one that computes to have had its own. Its share of the
 * core stays the same; older kernels take no notice. A thread begins with the turns of the one that
 * started it. */
#ifndef HP_COMMON_THREAD_TURNS_H
#define HP_COMMON_THREAD_TURNS_H

/* Of the thread that calls. Nothing happens where the system does not want it, or where the thread
 * is of another policy than the usual one: turns are a wish. */
void thread_turns_short(void);

#endif
