#!/usr/bin/env bash
# Two machines on one: hosts with a network address, a host name, processes, /tmp and /dev/shm of their own, which share
# every other folder; and Slurm on them. For root on Linux.
#   bash tests/e2e/hosts.sh up FOLDER [HOSTS]          hosts n1, n2, ...; FOLDER is shared by them, even in /tmp
#   bash tests/e2e/hosts.sh on FOLDER n2 COMMAND ...   a command on one of them
#   bash tests/e2e/hosts.sh lose FOLDER n2             all of a host's processes die at once
#   bash tests/e2e/hosts.sh slurm FOLDER [CPUS] [GPUS] Slurm on all of them: export SLURM_CONF=FOLDER/slurm.conf
#   bash tests/e2e/hosts.sh down FOLDER
# What a host can't see: hosts.sh on FOLDER n2 mount -t tmpfs none /videos
# A file system that hangs on a host (bindfs is Debian's):
#   hosts.sh on FOLDER n2 bindfs --no-allow-other /videos /videos; hosts.sh on FOLDER n2 pkill -STOP bindfs
# Slurm needs Debian's slurm-wlm and munge. Its GPUs are made up: a job is given a number of them and nothing else.
set -euo pipefail

NETWORK=${NETWORK:-10.77.0} # .254 is this machine, .1 the first host
here=${BASH_SOURCE[0]}

host_pid() { cat "$1/hosts/$2"; }

bridge_of() { echo "av$(echo "$1" | cksum | cut -c 1-6)"; }

# The first process of a host: what it alone sees is mounted here.
first_process() {
  local folder=$1 name=$2
  hostname "$name"
  ip link set lo up
  mount --bind "$folder" /mnt
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  mkdir -p "$folder"
  mount --move /mnt "$folder"
  mount --bind "$folder/hosts/names" /etc/hosts
  touch "$folder/hosts/$name.ready"
  sleep infinity &
  wait $! # bash meanwhile collects the host's orphans
}

up() {
  local folder=$1 count=${2:-2} number name bridge parent
  bridge=$(bridge_of "$folder")
  mkdir -p "$folder/hosts"
  echo "127.0.0.1 localhost" >"$folder/hosts/names"
  for number in $(seq "$count"); do echo "$NETWORK.$number n$number"; done >>"$folder/hosts/names"
  ip link add "$bridge" type bridge
  ip addr add "$NETWORK.254/24" dev "$bridge"
  ip link set "$bridge" up
  for number in $(seq "$count"); do
    name=n$number
    rm -f "$folder/hosts/$name.ready"
    setsid unshare --net --mount --uts --ipc --pid --fork --mount-proc --kill-child \
      bash "$here" first_process "$folder" "$name" </dev/null >"$folder/hosts/$name.log" 2>&1 &
    parent=$!
    until [ -e "$folder/hosts/$name.ready" ]; do
      kill -0 "$parent" 2>/dev/null || { cat "$folder/hosts/$name.log" >&2; return 1; }
      sleep 0.1
    done
    pgrep -P "$parent" >"$folder/hosts/$name"
    ip link add "$bridge-$number" type veth peer name eth0 netns "$(host_pid "$folder" "$name")"
    ip link set "$bridge-$number" master "$bridge" up
    on "$folder" "$name" sh -c "ip addr add $NETWORK.$number/24 dev eth0; ip link set eth0 up
      ip route add default via $NETWORK.254"
  done
}

on() {
  local folder=$1 name=$2
  shift 2
  nsenter --target "$(host_pid "$folder" "$name")" --net --mount --uts --ipc --pid --wd="$PWD" -- "$@"
}

lose() { kill -KILL "$(host_pid "$1" "$2")"; }

slurm() {
  local folder=$1 cpus=${2:-8} gpus=${3:-0} names name here_is
  names=$(cd "$folder/hosts" && ls n* | grep -E '^n[0-9]+$')
  here_is=$(hostname -s)
  # Who the daemons are isn't this set-up's question: root is everything.
  mkdir -p "$folder/slurm/state"
  (umask 077 && head -c 1024 /dev/urandom >"$folder/slurm/munge.key")
  chmod 755 "$folder" "$folder/slurm" # munged refuses a socket that others can't reach
  munged --force --key-file="$folder/slurm/munge.key" --socket="$folder/slurm/munge.socket" \
    --pid-file="$folder/slurm/munged.pid" --seed-file="$folder/slurm/munge.seed" --log-file="$folder/slurm/munged.log"
  cat >"$folder/slurm.conf" <<END
ClusterName=local
SlurmctldHost=$here_is($NETWORK.254)
SlurmctldPort=$((30000 + $(echo "$NETWORK" | cut -d . -f 2)))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/slurm/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/slurm/state
SlurmdSpoolDir=$folder/slurm/spool-%n
SlurmctldPidFile=$folder/slurm/slurmctld.pid
SlurmdPidFile=$folder/slurm/slurmd-%n.pid
SlurmctldLogFile=$folder/slurm/slurmctld.log
SlurmdLogFile=$folder/slurm/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
KillWait=30
SlurmdParameters=config_overrides
$([ "$gpus" = 0 ] || echo "GresTypes=gpu")
$(for name in $names; do
    echo "NodeName=$name NodeAddr=$NETWORK.${name#n} CPUs=$cpus RealMemory=16000$([ "$gpus" = 0 ] || echo " Gres=gpu:$gpus")"
  done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  [ "$gpus" = 0 ] || echo "Name=gpu Count=$gpus" >"$folder/gres.conf"
  export SLURM_CONF=$folder/slurm.conf
  slurmctld -c
  for name in $names; do
    mkdir -p "$folder/slurm/spool-$name"
    on "$folder" "$name" slurmd -N "$name"
  done
  for _ in $(seq 60); do
    if [ "$(sinfo --noheader --Node --states=idle --format=%N | wc -l)" = "$(echo "$names" | wc -l)" ]; then return; fi
    sleep 0.5
  done 2>/dev/null
  sinfo >&2
  return 1
}

down() {
  local folder=$1 file
  if [ -e "$folder/slurm.conf" ]; then
    kill $(cat "$folder/slurm/slurmctld.pid" "$folder/slurm/munged.pid" 2>/dev/null) 2>/dev/null || true
  fi
  for file in "$folder"/hosts/n*.ready; do
    kill -KILL "$(cat "${file%.ready}")" 2>/dev/null || true
  done
  ip link del "$(bridge_of "$folder")"
}

"$@"
