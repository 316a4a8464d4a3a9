/* Which box this is. */
#ifndef HP_COMMON_HOST_H
#define HP_COMMON_HOST_H

enum { HOST_ID = 65 };

/* A stable id of this box, the same for every program on it: the system's machine id, or its boot
 * id where there is none; hashed, since it travels. */
void host_id(char out[HOST_ID]);

#endif
