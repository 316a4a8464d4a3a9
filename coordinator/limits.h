/* The coordinator's limits and times. */
#ifndef HP_COORDINATOR_LIMITS_H
#define HP_COORDINATOR_LIMITS_H

enum {
    COORD_HEARTBEAT_MS = 500,
    COORD_SUSPECT_MS = 1500, /* without a heartbeat */
    COORD_LOST_MS = 2500,
    COORD_CALL_MS = 800,         /* without a heartbeat: it is called, to see whether it is there */
    COORD_GONE_MS = 1200,        /* without one, if its connection is closed */
    COORD_GONE_DOUBTED_MS = 600, /* and a link of its neighbours to it broke, too */
    COORD_DOUBT_MS =
        3000,            /* a link between stages broke: by then it is known whether one is gone */
    COORD_TICK_MS = 100, /* how often coord_tick wants to be called at least */
    COORD_PAUSE_MS = 1000, /* without an event for longer: the coordinator itself stood still, and
                              its time with it */
    COORD_REJOIN_MS =
        10000, /* after a start: how long deployments wait for the agents of their plan */
    COORD_PROFILE_MS = 4000,  /* what an agent may spend on measuring a model */
    COORD_RESUME_MS = 120000, /* nobody reads a request that may be resumed: it ends then */
    COORD_MAX_MEMBERS = 4000,
    COORD_MAX_DEPLOYMENTS = 256,
    COORD_MAX_STAGES = 64,   /* of one deployment */
    COORD_MAX_WAITING = 512, /* requests in the queue of one deployment */
    COORD_MAX_WAITING_OF_CLIENT = 64,
    COORD_MAX_ASKS = 1024,  /* questions that wait for an agent */
    COORD_MAX_WORK = 256,   /* pieces of work that are out */
    COORD_MAX_PLANNING = 2, /* plans among them: the others' turn comes */
};

#endif
