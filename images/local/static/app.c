/* The whole content of the image "static": one program, no shell, no library.
 *
 * usage: /app [PORT]
 * Answers every HTTP request on PORT (8080) with one line, until it gets TERM or INT.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n"
    "Connection: close\r\n\r\nhello from static\n";

static void stop(int number)
{
    (void)number;
    _exit(0);
}

static void serve(int client)
{
    char request[4096];
    size_t have = 0;
    struct timeval limit = {5, 0};

    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while (have < sizeof request - 1) {
        ssize_t got = read(client, request + have, sizeof request - 1 - have);
        if (got <= 0)
            break;
        have += (size_t)got;
        request[have] = 0;
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    if (write(client, answer, sizeof answer - 1) < 0)
        perror("app: write");
    shutdown(client, SHUT_WR);
    close(client);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {0};
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0);

    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)(argc > 1 ? atoi(argv[1]) : 8080));
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (door < 0 || bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, 64)) {
        perror("app");
        return 1;
    }
    puts("app: listening");
    fflush(stdout);
    for (;;) {
        int client = accept(door, NULL, NULL);
        if (client >= 0)
            serve(client);
    }
}
