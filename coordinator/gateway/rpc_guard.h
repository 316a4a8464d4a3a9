/* Stands between the connections of strangers and a library that speaks HTTP/2: gives the library
 * one end of a socket pair for each connection, and a thread of its own carries the bytes, of which
 * rpc_frames.h says what may pass. Bytes stay in the kernel until both sides have them: nothing is
 * held here, and who reads slowly slows who writes. */
#ifndef HP_COORDINATOR_GATEWAY_RPC_GUARD_H
#define HP_COORDINATOR_GATEWAY_RPC_GUARD_H

#include "common/status.h"

struct rpc_guard;

/* HP_ENOMEM, HP_EIO. */
int rpc_guard_start(struct rpc_guard **out, struct err *e);
/* A connection, which is the guard's from here on: the descriptor for the library, which closes it;
 * -1: there was no room, and the connection is closed. */
int rpc_guard_take(struct rpc_guard *g, int connection);
/* The connection behind what the library was given; -1: it is gone. */
int rpc_guard_connection(struct rpc_guard *g, int given);
/* Once the library has closed what it was given: carries what is left for a second at most. */
void rpc_guard_stop(struct rpc_guard **g);

#endif
