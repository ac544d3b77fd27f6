/*
 * Set up a process the way posix_spawn(3) cannot, then become the program.
 *
 *     spawn ITEM... -- PROGRAM [ARGUMENT...]
 *
 * Each ITEM is one letter and its value; items are carried out in the order given
 * (execd/spawn/block.py writes them and keeps the order right):
 *
 *     eFD            report a failure on descriptor FD; closed by a successful exec
 *     m              unblock all signals, give every signal its default action
 *     s              start a session          (setsid(2))
 *     p              start a process group    (setpgid(2))
 *     t              make descriptor 0 the controlling terminal
 *     rN:SOFT:HARD   limit resource N; "-" means unlimited  (setrlimit(2))
 *     c              adopt orphaned descendants (PR_SET_CHILD_SUBREAPER)
 *     oN             oom_score_adj, where the kernel lets us
 *     kMODE          umask, octal
 *     GA,B,...       exactly these supplementary groups; none when empty
 *     gN  uN         real, effective and saved group / user
 *     fPATH          execute this file; PROGRAM is then only the name it is told
 *     dPATH          working directory, entered with the new identity
 *     xA,B,...       close descriptors from 3 up, except these and the report's
 *
 * PROGRAM with a slash is executed as it is; a bare name is looked up in the absolute
 * entries of PATH in our own environment, never in the working directory.
 *
 * A failure is one line on the report descriptor, "STEP ERRNO\n", where STEP is the
 * item's letter, "!" for exec and "?" for a malformed item; the exit status is then
 * 127 (no such program) or 126. Nothing written there means that the program runs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* the same number on every architecture */
#endif

#define MAX_KEPT 32
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

static int report = -1;
static const char *file_to_execute;
static gid_t groups[65536];

static _Noreturn void fail(char step, int error)
{
    int status = step == '!' && (error == ENOENT || error == ENOTDIR) ? 127 : 126;
    char line[16];
    char digits[12];
    size_t n = 0, d = 0;
    line[n++] = step;
    line[n++] = ' ';
    do {
        digits[d++] = (char)('0' + error % 10);
        error /= 10;
    } while (error > 0);
    while (d > 0)
        line[n++] = digits[--d];
    line[n++] = '\n';
    if (report >= 0 && write(report, line, n) < 0)
        status = 126;
    _exit(status);
}

static void check(char step, long result)
{
    if (result < 0)
        fail(step, errno);
}

/* Read an unsigned number of the given base; the text moves on behind it. */
static unsigned long long number(const char **text, unsigned base)
{
    unsigned long long value = 0;
    const char *at = *text;
    while (*at >= '0' && (unsigned)(*at - '0') < base) {
        unsigned digit = (unsigned)(*at - '0');
        if (value > (ULLONG_MAX - digit) / base)
            fail('?', ERANGE);
        value = value * base + digit;
        at++;
    }
    if (at == *text)
        fail('?', EINVAL);
    *text = at;
    return value;
}

static unsigned long long only_number(const char *text, unsigned base, unsigned long long most)
{
    unsigned long long value = number(&text, base);
    if (*text != '\0')
        fail('?', EINVAL);
    if (value > most)
        fail('?', ERANGE);
    return value;
}

static void expect(const char **text, char wanted)
{
    if (**text != wanted)
        fail('?', EINVAL);
    (*text)++;
}

static void reset_signals(void)
{
    struct sigaction action;
    sigset_t none;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    for (int s = 1; s < 65; s++)
        (void)sigaction(s, &action, NULL); /* KILL, STOP and libc's own signals refuse */
    sigemptyset(&none);
    check('m', sigprocmask(SIG_SETMASK, &none, NULL));
}

static rlim_t limit_value(const char **text)
{
    if (**text == '-') {
        (*text)++;
        return RLIM_INFINITY;
    }
    return (rlim_t)number(text, 10);
}

static void limit(const char *text)
{
    struct rlimit value;
    unsigned long long resource = number(&text, 10);
    expect(&text, ':');
    value.rlim_cur = limit_value(&text);
    expect(&text, ':');
    value.rlim_max = limit_value(&text);
    if (*text != '\0')
        fail('?', EINVAL);
    if (resource > 64)
        fail('?', ERANGE);
    check('r', setrlimit((int)resource, &value));
}

static void set_groups(const char *text)
{
    size_t count = 0;
    while (*text != '\0') {
        unsigned long long group = number(&text, 10);
        if (group >= UINT_MAX || count == sizeof groups / sizeof groups[0])
            fail('?', ERANGE);
        groups[count++] = (gid_t)group;
        if (*text != '\0') {
            expect(&text, ',');
            if (*text == '\0')
                fail('?', EINVAL);
        }
    }
    check('G', setgroups(count, groups));
}

static void set_oom_score(const char *text)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0)
            (void)0; /* a wish, not a promise: lowering it needs a capability */
        close(fd);
    }
}

static int is_kept(int fd, const int *kept, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i] == fd)
            return 1;
    return 0;
}

/* Without close_range(2) (before Linux 5.9, or refused by a seccomp profile). */
static void close_listed(const int *kept, size_t count)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    if (dir == NULL) {
        for (int fd = 3; fd < 4096; fd++)
            if (!is_kept(fd, kept, count))
                close(fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        if (*name < '0' || *name > '9')
            continue;
        int fd = (int)only_number(name, 10, INT_MAX);
        if (fd >= 3 && fd != dirfd(dir) && !is_kept(fd, kept, count))
            close(fd);
    }
    closedir(dir);
}

static void close_others(const char *text)
{
    int kept[MAX_KEPT];
    size_t count = 0;
    unsigned from = 3;
    if (report >= 0)
        kept[count++] = report;
    while (*text != '\0') {
        unsigned long long fd = number(&text, 10);
        if (fd > INT_MAX || count == MAX_KEPT)
            fail('?', ERANGE);
        kept[count++] = (int)fd;
        if (*text != '\0')
            expect(&text, ',');
    }
    for (;;) {
        unsigned next = UINT_MAX;
        for (size_t i = 0; i < count; i++)
            if ((unsigned)kept[i] >= from && (unsigned)kept[i] < next)
                next = (unsigned)kept[i];
        if (next > from && syscall(SYS_close_range, from, next == UINT_MAX ? next : next - 1, 0) < 0) {
            close_listed(kept, count);
            return;
        }
        if (next == UINT_MAX)
            return;
        from = next + 1;
    }
}

static void carry_out(const char *item)
{
    const char *value = item + 1;
    switch (item[0]) {
    case 'e':
        report = (int)only_number(value, 10, INT_MAX);
        check('e', fcntl(report, F_SETFD, FD_CLOEXEC));
        break;
    case 'm':
        reset_signals();
        break;
    case 's':
        check('s', setsid());
        break;
    case 'p':
        check('p', setpgid(0, 0));
        break;
    case 't':
        check('t', ioctl(0, TIOCSCTTY, 0));
        break;
    case 'r':
        limit(value);
        break;
    case 'c':
        check('c', prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
        break;
    case 'o':
        set_oom_score(value);
        break;
    case 'k':
        umask((mode_t)only_number(value, 8, 0777));
        break;
    case 'G':
        set_groups(value);
        break;
    case 'g': {
        gid_t gid = (gid_t)only_number(value, 10, UINT_MAX - 1);
        check('g', setresgid(gid, gid, gid));
        break;
    }
    case 'u': {
        uid_t uid = (uid_t)only_number(value, 10, UINT_MAX - 1);
        check('u', setresuid(uid, uid, uid));
        break;
    }
    case 'f':
        file_to_execute = value;
        break;
    case 'd':
        check('d', chdir(value));
        break;
    case 'x':
        close_others(value);
        break;
    default:
        fail('?', EINVAL);
    }
}

/* Become a program found on PATH; remember the most telling error, as execvp(3) does. */
static int execute_from_path(char **argv)
{
    static char file[PATH_MAX];
    const char *at = getenv("PATH");
    size_t name = strlen(argv[0]);
    int error = ENOENT;
    if (at == NULL)
        at = DEFAULT_PATH;
    for (;;) {
        const char *end = strchr(at, ':');
        size_t length = end == NULL ? strlen(at) : (size_t)(end - at);
        if (*at == '/' && length + name + 2 <= sizeof file) {
            memcpy(file, at, length);
            file[length] = '/';
            memcpy(file + length + 1, argv[0], name + 1);
            execve(file, argv, environ);
            if (errno == EACCES)
                error = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR)
                return errno;
        }
        if (end == NULL)
            return error;
        at = end + 1;
    }
}

int main(int argc, char **argv)
{
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0)
        carry_out(argv[at++]);
    if (at + 1 >= argc || argv[at + 1][0] == '\0')
        fail('?', EINVAL);
    argv += at + 1;
    if (file_to_execute != NULL)
        execve(file_to_execute, argv, environ);
    else if (strchr(argv[0], '/') == NULL)
        errno = execute_from_path(argv);
    else
        execve(argv[0], argv, environ);
    fail('!', errno);
}
