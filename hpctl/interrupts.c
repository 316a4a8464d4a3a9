#include "hpctl/interrupts.h"

#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int which)
{
    (void)which;
    interrupted = 1;
}

void interrupts_hear(struct sigaction *before)
{
    struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, NULL, before);
    if (before->sa_handler != on_interrupt)
        interrupted = 0;
    sigaction(SIGINT, &stop, NULL);
}

bool interrupts_heard(void)
{
    return interrupted;
}

void interrupts_forget(void)
{
    interrupted = 0;
}
