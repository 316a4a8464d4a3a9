/* What the data path between every two agents is like, as they measured it: the matrix, a row a
 * member. link_probes.h measures. */
#ifndef HP_COORDINATOR_LINKS_H
#define HP_COORDINATOR_LINKS_H

#include "coordinator/member.h"

/* A latency that differs by so much is news. */
#define LINKS_LATENCY_NEWS_S 0.002

/* From the member that holds it to another. */
struct member_link {
    const struct member *to;
    double latency_s, bandwidth_bytes_per_s; /* 0: never measured */
    uint64_t measured_s;                     /* Unix time */
    uint64_t due_ns;                         /* when it is to be measured (again) */
    double doubted_bytes_per_s;              /* a result that was not believed; 0: none */
    uint64_t broken_until_ns; /* nothing is planned over it before (broken_links.h) */
    unsigned breaks;          /* so often it was broken, one soon after the other */
    /* late_links.h */
    double late_s; /* frames or measurements take so much longer than latency_s, which is what they
                      take usually; 0: they do not */
    double late_least_s;
    int late_prompts, late_verdict;
    bool seen;          /* frames were on time there, before or since it was measured */
    unsigned late_told; /* so often it became so, or by more */
    /* lossy_links.h */
    double loss;         /* share of packets; 0: none worth a word */
    double loss_told;    /* the share that people and plans were told last */
    unsigned lossy_told; /* so often they were */
    struct {
        uint64_t segments, lost;                    /* as it was told last */
        uint64_t from_segments, from_lost, from_ns; /* when one began to count */
        int times;                                  /* losses were told so often since */
    } losses;
    char failure[160]; /* why the last measurement failed; "": it did not */
};

/* The row's cell, measured or not; NULL: there is none, or (links_make) no memory for it. */
struct member_link *links_cell(const struct member *from, const struct member *to);
struct member_link *links_make(struct member *from, const struct member *to);
/* The last result of a link between two that are here was not believed; another is to come. */
bool links_is_doubted(const struct member *from, const struct member_link *l);
/* The data path from one member to another, as planners are given it. */
struct links_path {
    const struct member *from, *to;
    struct cluster_wire wire;
    uint64_t measured_s; /* 0: given, for paced agents, or assumed */
    double late_s;       /* of the wire's latency: longer than usual by that (late_links.h) */
    double loss;         /* this way; the wire has what the worse way costs (lossy_links.h) */
    bool assumed;        /* nobody has measured it: of one box, or as the way back or the network
                            cards are where frames showed that it is late or loses packets */
    bool serves_back;    /* nothing is known of the way back, so this one serves it */
};
/* What is known of the paths between two members: how many, none where only their network cards
 * say anything. Between paced agents, whose links are given, nothing is measured. */
int links_paths(const struct member *a, const struct member *b, struct links_path out[2]);

/* The share of packets that is lost between two members, the way that is worse: of two stages each
 * sends to the other. */
double links_loss(const struct member *a, const struct member *b);

/* "tcp 10.0.0.5:7071": where an agent's data channel listens, for people and their firewalls. */
void links_address_text(const struct member *m, char *out, size_t size);
/* Before a member is freed: nobody may point at it. */
void links_member_removed(struct coord *c, const struct member *m);

/* Stores what this agent measured. */
void links_keep(struct coord *c, const struct member *m);
/* The store's record of what one agent measured; the members are there already. */
int links_restore(struct coord *c, const char *name, json_t *record, struct err *e);

#endif
