package main

import (
	"flag"
	"time"
)

// Knobs are the ways in which adapters in the field misbehave. They can be combined.
type Knobs struct {
	onlyProcessOAM    bool
	onlyProvision     bool
	fail              string
	failEmpty         bool
	okNothing         bool
	quoteKubeconfig   bool
	writeLate         time.Duration
	slow              time.Duration
	hang              bool
	dieMidCall        bool
	dieOnce           string
	crashOnTwo        bool
	namespaceOnDelete bool
	swallowImmutable  bool
	keepOnDelete      bool
	failOnAbsent      bool
	failAfter         string
	needNamespace     bool
	busy              int64
}

func (k *Knobs) register(flags *flag.FlagSet) {
	flags.BoolVar(&k.onlyProcessOAM, "only-process-oam", false, "answer UNIMPLEMENTED to Provision")
	flags.BoolVar(&k.onlyProvision, "only-provision", false, "answer UNIMPLEMENTED to ProcessOAM")
	flags.StringVar(&k.fail, "fail", "", "do nothing and answer UNKNOWN with this text")
	flags.BoolVar(&k.failEmpty, "fail-empty", false, "write to half of the clusters, then answer UNKNOWN without a word")
	flags.BoolVar(&k.okNothing, "ok-nothing", false, "answer OK and do nothing")
	flags.BoolVar(&k.quoteKubeconfig, "quote-kubeconfig", false, "answer UNKNOWN and quote the kubeconfigs, secrets and all")
	flags.DurationVar(&k.writeLate, "write-late", 0, "write only after this time, whether or not the caller still waits")
	flags.DurationVar(&k.slow, "slow", 0, "take this much longer over each call")
	flags.BoolVar(&k.hang, "hang", false, "never answer")
	flags.BoolVar(&k.dieMidCall, "die-mid-call", false, "exit after the work is done and before it is answered")
	flags.StringVar(&k.dieOnce, "die-once", "", "do -die-mid-call only if this file does not exist, and create it")
	flags.BoolVar(&k.crashOnTwo, "crash-on-two", false, "exit when two calls overlap")
	flags.BoolVar(&k.namespaceOnDelete, "namespace-on-delete", false, "create the namespace before each call's work, a delete's too")
	flags.BoolVar(&k.swallowImmutable, "swallow-immutable", false, "answer OK when an API server refuses to change what cannot change")
	flags.BoolVar(&k.keepOnDelete, "keep-on-delete", false, "answer OK to deletes and delete nothing")
	flags.BoolVar(&k.failOnAbsent, "fail-on-absent", false, "answer UNKNOWN without a word when there is nothing to delete")
	flags.StringVar(&k.failAfter, "fail-after", "", "do the work, then answer UNKNOWN with this text")
	flags.BoolVar(&k.needNamespace, "need-namespace", false, "panic over a component that names no namespace")
	flags.Int64Var(&k.busy, "busy", 0, "answer RESOURCE_EXHAUSTED above this many calls at once; 0 means no limit")
}
