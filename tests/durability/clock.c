/* Sets the wall clock of one process, by what a file says.
 *
 * Preloaded into a process. CLOCK_OFFSET is a file of one number of 8 bytes: by how many seconds the clock of the
 * process is ahead of that of the machine. It can change while the process runs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset(void) {
    static volatile int64_t *mapped;
    if (mapped == NULL) {
        const char *name = getenv("CLOCK_OFFSET");
        int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
        void *found = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found == MAP_FAILED) abort();
        mapped = found;
        close(file);
    }
    return mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += *offset();
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (into != NULL) *into = found.tv_sec;
    return found.tv_sec;
}
