/* What a program may do around the ioctls of a kernel's device node. Each case prints "ok NAME" or "WRONG NAME: ...".
 *
 *   allowed NODE handler        an ioctl in the handler of a signal that comes during one
 *   allowed NODE cancel         pthread_cancel of a thread that waits in one
 *   allowed NODE longjmp        siglongjmp out of the handler of a signal that comes during one
 *   allowed NODE stack BYTES    a thread with a small stack
 *   allowed NODE raw-fork       a child of _Fork, beside which its parent goes on
 *   allowed NODE close-all      all descriptors are closed, and files of the program opened under their numbers
 *   allowed NODE paths FOLDER   paths through links, and functions that take paths
 *   allowed NODE file [preloaded]  reads and maps of a node; a file that has its number is left alone
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STORE = 0x01, RETRIEVE = 0x02, EXIST = 0x14, ASYNC_EVENT = 0x0C, BYTES = 65536 };
static const long BAD = 1 << 16;
static int wrong, fd;
static const char *node;

static void check(const char *name, long is, long should) {
    if (is == should) {
        printf("ok %s\n", name);
    } else {
        printf("WRONG %s: %lXh, not %lXh\n", name, is, should);
        wrong = 1;
    }
    fflush(stdout);
}

static long said(long returned) { return returned < 0 ? BAD | errno : returned; }

static long io(int opcode, const char *key, void *data, unsigned length) {
    struct nvme_passthru_cmd command = {.opcode = opcode, .nsid = 1};
    char bytes[16] = {0};
    memcpy(bytes, key, strlen(key));
    memcpy(&command.cdw2, bytes, 8);
    memcpy(&command.cdw14, bytes + 8, 8);
    command.cdw11 = strlen(key);
    command.cdw10 = command.data_len = length;
    command.addr = (uintptr_t)data;
    return said(ioctl(fd, NVME_IOCTL_IO_CMD, &command));
}

/* Waits in an ioctl for so many milliseconds: the event does not come. */
static long wait_in_ioctl(int ms) {
    struct nvme_passthru_cmd event = {.opcode = ASYNC_EVENT, .timeout_ms = ms};
    return said(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &event));
}

static void every(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, 0);
}

static volatile int handled, failed_there;

static void handler_asks(int number) {
    (void)number;
    struct stat it;
    failed_there += io(EXIST, "none", 0, 0) != 0x4087 || fstat(fd, &it) || !S_ISCHR(it.st_mode);
    handled++;
}

static void in_a_handler(void) {
    static char value[BYTES];
    signal(SIGALRM, handler_asks);
    every(300);
    long failures = 0;
    for (int i = 0; i < 300; i++) failures += io(STORE, "key", value, BYTES) != 0;
    every(0);
    check("ioctls beside handlers", failures, 0);
    check("ioctls in handlers", failed_there, 0);
    check("handlers ran", handled > 20, 1);
}

static sigjmp_buf back;

static void handler_leaves(int number) {
    (void)number;
    handled++;
    siglongjmp(back, 1);
}

static void by_longjmp(void) {
    static char value[BYTES];
    signal(SIGALRM, handler_leaves);
    every(700);
    volatile long failures = 0;
    while (handled < 100) {
        if (!sigsetjmp(back, 1)) {
            for (;;) failures += io(STORE, "key", value, BYTES) != 0;
        }
    }
    every(0);
    check("ioctls that a handler left", failures, 0);
    check("the next one", io(EXIST, "key", 0, 0), 0);
}

static volatile int is_in_ioctl, was_answered;

static void *cancelled(void *nothing) {
    is_in_ioctl = 1;
    was_answered = wait_in_ioctl(200) == (BAD | EINTR);
    pthread_testcancel();
    return nothing;
}

static void cancel(void) {
    pthread_t id;
    void *end;
    pthread_create(&id, 0, cancelled, 0);
    while (!is_in_ioctl) usleep(100);
    usleep(50000);
    pthread_cancel(id);
    pthread_join(id, &end);
    check("an ioctl is no cancellation point", was_answered, 1);
    check("the thread was cancelled after it", end == PTHREAD_CANCELED, 1);
    check("the next one", io(EXIST, "none", 0, 0), 0x4087);
}

static void *on_small_stack(void *answer) {
    static char value[BYTES];
    int other = open(node, O_RDWR);
    *(long *)answer = other < 0 || io(STORE, "small", value, BYTES) || io(RETRIEVE, "small", value, BYTES);
    close(other);
    return 0;
}

static void small_stack(long bytes) {
    long answer = -1;
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    check("a stack of that size", pthread_attr_setstacksize(&attributes, bytes), 0);
    check("a thread on it", pthread_create(&id, &attributes, on_small_stack, &answer), 0);
    pthread_join(id, 0);
    check("its ioctls", answer, 0);
}

static void raw_fork(void) {
    static char mine[BYTES], now[BYTES];
    long failures = 0, refused = 0;
    for (int round = 0; round < 20; round++) {
        memset(mine, 1 + round, BYTES);
        failures += io(STORE, "mine", mine, BYTES) != 0;
        pid_t id = round % 2 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (id == 0) {
            int is = 0;
            memset(mine, 0xFF, BYTES);
            for (int i = 0; i < 10; i++) is += io(STORE, "mine", mine, BYTES) == (BAD | ENODEV);
            _exit(is);
        }
        for (int i = 0; i < 10; i++) {
            failures += io(RETRIEVE, "mine", now, BYTES) != 0 || memcmp(mine, now, BYTES) != 0;
        }
        int status;
        waitpid(id, &status, 0);
        refused += WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    check("the parent's answers", failures, 0);
    check("commands of children that are refused", refused, 200);
}

static void close_all(const char *folder) {
    static char value[4096];
    check("before", io(STORE, "key", value, 4096), 0);
    for (int i = 3; i < 200; i++) close(i);
    char path[300];
    snprintf(path, sizeof path, "%s/own", folder);
    int own[60];
    for (int i = 0; i < 60; i++) own[i] = open(path, O_RDWR | O_CREAT, 0600);
    fd = open(node, O_RDWR);
    long failures = 0, closed = 0;
    for (int i = 0; i < 10; i++) failures += io(STORE, "key", value, 4096) != 0;
    check("ioctls after it", failures, 0);
    struct stat should, is;
    stat(path, &should);
    for (int i = 0; i < 60; i++) closed += fstat(own[i], &is) || is.st_ino != should.st_ino;
    check("descriptors of the program that were closed", closed, 0);
    check("bytes that others wrote to its file", should.st_size, 0);
    /* Sockets are taken for no connection either. */
    for (int i = 3; i < 200; i++) close(i);
    for (int i = 0; i < 30; i++) syscall(SYS_socketpair, 1, 1, 0, own + 2 * i);
    fd = open(node, O_RDWR);
    check("ioctls beside sockets", io(EXIST, "key", 0, 0), 0);
    for (int i = 0; i < 60; i++) closed += write(own[i], "x", 1) != 1 || read(own[i ^ 1], value, 1) != 1;
    check("sockets of the program that were closed", closed, 0);
}

static int is_device(const char *path) {
    struct stat it;
    return !stat(path, &it) && S_ISCHR(it.st_mode);
}

static long opened(int descriptor) {
    if (descriptor < 0) return BAD | errno;
    long answer = said(ioctl(descriptor, NVME_IOCTL_ID));
    close(descriptor);
    return answer;
}

static void paths(const char *folder) {
    char link[300], second[300], around[300], there[5000];
    struct stat it;
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    check("make a link", symlink(node, link) | symlink("link", second), 0);
    check("open a link", opened(open(link, O_RDWR)), 1);
    check("open a link to a link", opened(open(second, O_RDWR)), 1);
    check("open a link and not follow it", said(open(link, O_RDWR | O_NOFOLLOW)), BAD | ELOOP);
    check("stat of a link", is_device(second), 1);
    check("lstat of a link", lstat(link, &it) | !S_ISLNK(it.st_mode), 0);
    check("access of a link", access(link, R_OK | W_OK), 0);
    check("euidaccess", euidaccess(node, R_OK | W_OK), 0);
    check("realpath", strcmp(realpath(node, there) ? there : "", node), 0);
    char *made = realpath(second, 0);
    check("realpath of a link", strcmp(made ? made : "", node), 0);
    free(made);
    check("readlink", said(readlink(node, there, sizeof there)), BAD | EINVAL);
    check("go to a folder", chdir("/usr/bin"), 0);
    snprintf(around, sizeof around, "../../dev/./%s", strrchr(node, '/') + 1);
    check("a path with dots", opened(open(around, O_RDWR)), 1);
    snprintf(around, sizeof around, "/usr/..//dev/../dev/%s", strrchr(node, '/') + 1);
    check("a path around", is_device(around), 1);
    snprintf(around, sizeof around, "/proc/self/root/dev/%s", strrchr(node, '/') + 1);
    check("a path through a link", opened(open(around, O_RDWR)), 1);
    struct open_how how = {.flags = O_RDWR | O_CLOEXEC};
    check("openat2", opened(syscall(SYS_openat2, AT_FDCWD, node, &how, sizeof how)), 1);
    FILE *stream = fopen(node, "r+");
    check("fopen", stream ? said(ioctl(fileno(stream), NVME_IOCTL_ID)) : BAD | errno, 1);
    if (stream) fclose(stream);
}

static void file(int is_preloaded) {
    char text[16];
    struct stat it;
    check("read", said(read(fd, text, 16)), BAD | EINVAL);
    if (is_preloaded) check("pread", said(pread(fd, text, 16, 0)), BAD | EINVAL);
    struct iovec part = {text, 16};
    check("readv", said(readv(fd, &part, 1)), BAD | EINVAL);
    check("write", said(write(fd, text, 16)), BAD | EINVAL);
    check("mmap", mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? BAD | errno : 0, BAD | ENODEV);
    /* An empty file without a name whose number is the node's, in another file system: whose number is lower is made
     * anew, until both are equal. (Under supervision the system is asked about no number.) */
    struct stat nodes, raw;
    int own = -1, is_made = 0, taken = 0;
    for (int i = 0; is_preloaded && i < 300000 && !is_made; i++) {
        if (own < 0) own = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
        if (own < 0 || fd < 0 || syscall(SYS_fstat, own, &raw) || syscall(SYS_fstat, fd, &nodes)) break;
        if (raw.st_ino < nodes.st_ino) {
            close(own);
            own = -1;
        } else if (raw.st_ino > nodes.st_ino) {
            close(fd);
            fd = open(node, O_RDWR);
        } else {
            is_made = 1;
            fstat(fd, &it);
            fstat(own, &it);
            taken = S_ISCHR(it.st_mode);
        }
    }
    printf("a file of the node's number was %s\n", is_made ? "made" : "not made");
    check("it is a file", taken, 0);
    int null = open("/dev/null", O_RDWR);
    check("another file's end", read(null, text, 16), 0);
    void *map = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0);
    check("another file's map", map != MAP_FAILED, 1);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    node = arguments[1];
    const char *what = arguments[2];
    fd = open(node, O_RDWR);
    check("open", fd >= 0, 1);
    alarm(60);
    if (!strcmp(what, "handler")) in_a_handler();
    else if (!strcmp(what, "cancel")) cancel();
    else if (!strcmp(what, "longjmp")) by_longjmp();
    else if (!strcmp(what, "stack") && count == 4) small_stack(atol(arguments[3]));
    else if (!strcmp(what, "raw-fork")) raw_fork();
    else if (!strcmp(what, "close-all") && count == 4) close_all(arguments[3]);
    else if (!strcmp(what, "paths") && count == 4) paths(arguments[3]);
    else if (!strcmp(what, "file")) file(count > 3);
    else return 2;
    return wrong;
}
