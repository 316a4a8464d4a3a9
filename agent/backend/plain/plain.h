/* The reference: a complete backend whose every operator is a plain loop on one thread. What other
 * backends are compared with, and what runs on a CPU that has nothing better. */
#ifndef HP_AGENT_BACKEND_PLAIN_PLAIN_H
#define HP_AGENT_BACKEND_PLAIN_PLAIN_H

#include "agent/backend/backend.h"

extern const struct backend plain_backend;

#endif
