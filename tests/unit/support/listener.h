// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>

#include "common/unique_fd.h"

namespace cacheshim {

// A socket that listens on a free port of 127.0.0.1. The constructor throws std::runtime_error.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    const bool is_ready = ::bind(socket_.get(), generic, size) == 0 &&
                          ::listen(socket_.get(), 16) == 0 &&
                          ::getsockname(socket_.get(), generic, &size) == 0;
    if (!is_ready) throw std::runtime_error("cannot listen on 127.0.0.1");
    port_ = ::ntohs(address.sin_port);
  }
  int socket() const { return socket_.get(); }
  int port() const { return port_; }

 private:
  UniqueFd socket_;
  int port_ = 0;
};

}  // namespace cacheshim
