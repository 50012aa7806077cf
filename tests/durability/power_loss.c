/* Records what a process writes to the files of one folder, and what it syncs, in order.
 *
 * Preloaded into a process. POWER_LOSS_FOLDER is the folder, POWER_LOSS_TRACE the file for the records. Each is
 * a head of five numbers (kind, offset, length of the path, length of the data, 0), the path and the data.
 * From these, a test makes the files as a disk would have them that lost its power at any point.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WRITTEN = 1, SYNCED = 2, CUT = 3, REMOVED = 4 };

static pthread_mutex_t in_order = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;

static void put(const void *bytes, size_t length) {
    const char *next = bytes;
    while (length > 0) {
        long done = syscall(SYS_write, trace, next, length);
        if (done <= 0) abort();
        next += done;
        length -= (size_t)done;
    }
}

/* Under the lock, after it was done. */
static void record(int64_t kind, const char *path, int64_t offset, const void *data, size_t length) {
    const char *folder = getenv("POWER_LOSS_FOLDER"), *name = getenv("POWER_LOSS_TRACE");
    if (folder == NULL || name == NULL || strncmp(path, folder, strlen(folder)) != 0) return;
    if (trace < 0) trace = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace < 0) abort();
    int64_t head[5] = {kind, offset, (int64_t)strlen(path), (int64_t)length, 0};
    put(head, sizeof head);
    put(path, strlen(path));
    put(data, length);
}

static void record_open(int64_t kind, int file, int64_t offset, const void *data, size_t length) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t found = readlink(link, path, sizeof path - 1);
    if (found <= 0) return;
    path[found] = 0;
    record(kind, path, offset, data, length);
}

ssize_t write(int file, const void *data, size_t length) {
    pthread_mutex_lock(&in_order);
    off_t offset = lseek(file, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_write, file, data, length);
    if (done > 0 && offset >= 0) record_open(WRITTEN, file, offset, data, (size_t)done);
    pthread_mutex_unlock(&in_order);
    return done;
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset) {
    pthread_mutex_lock(&in_order);
    ssize_t done = syscall(SYS_pwrite64, file, data, length, offset);
    if (done > 0) record_open(WRITTEN, file, offset, data, (size_t)done);
    pthread_mutex_unlock(&in_order);
    return done;
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) {
    return pwrite(file, data, length, offset);
}

/* Only recorded: this machine keeps its power, and its disk may be slow. */
int fsync(int file) {
    pthread_mutex_lock(&in_order);
    record_open(SYNCED, file, 0, "", 0);
    pthread_mutex_unlock(&in_order);
    return 0;
}

int fdatasync(int file) { return fsync(file); }

int ftruncate(int file, off_t length) {
    pthread_mutex_lock(&in_order);
    int done = (int)syscall(SYS_ftruncate, file, length);
    if (done == 0) record_open(CUT, file, length, "", 0);
    pthread_mutex_unlock(&in_order);
    return done;
}

int ftruncate64(int file, off64_t length) { return ftruncate(file, length); }

int unlink(const char *path) {
    pthread_mutex_lock(&in_order);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (done == 0) record(REMOVED, path, 0, "", 0);
    pthread_mutex_unlock(&in_order);
    return done;
}
