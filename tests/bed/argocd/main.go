// Argo CD's application controller and repo server, and the Redis that both share, in one program.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	repocommands "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	commitclient "github.com/argoproj/argo-cd/v3/commitserver/apiclient"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/controller"
	"github.com/argoproj/argo-cd/v3/controller/sharding"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/pkg/client/clientset/versioned"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/cache/appstate"
	"github.com/argoproj/argo-cd/v3/util/kube"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/argoproj/argo-cd/v3/util/tls"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "argocd"

func main() {
	root := &cobra.Command{Use: "argocd", SilenceUsage: true}
	root.AddCommand(redisCommand(), repocommands.NewCommand(), controllerCommand())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := root.ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

// Keeps everything in memory.
func redisCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "redis ADDRESS",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			server := miniredis.NewMiniRedis()
			if err := server.StartAddr(args[0]); err != nil {
				return err
			}
			defer server.Close()
			<-command.Context().Done()
			return nil
		},
	}
}

// Argo CD's own command has no flag for the address of its metrics, which it serves on all
// interfaces. This one sets it; everything else has Argo CD's defaults.
func controllerCommand() *cobra.Command {
	var redisAddress, repoServer, metrics string
	command := &cobra.Command{
		Use:  "application-controller",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return control(command.Context(), redisAddress, repoServer, metrics)
		},
	}
	command.Flags().StringVar(&redisAddress, "redis", "", "address of Redis")
	command.Flags().StringVar(&repoServer, "repo-server", "", "address of the repo server")
	command.Flags().StringVar(&metrics, "metrics", "", "where metrics and health are served")
	return command
}

func control(ctx context.Context, redisAddress, repoServer, metrics string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	if err := v1alpha1.SetK8SConfigDefaults(config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	applications, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	var controls *controller.ApplicationController
	manager := settings.NewSettingsManager(ctx, client, namespace,
		settings.WithRepoOrClusterChangedHandler(func() { controls.InvalidateProjectsCache() }))
	shards, err := sharding.GetClusterSharding(client, manager, common.DefaultShardingAlgorithm, false)
	if err != nil {
		return err
	}
	inRedis := cache.NewRedisCache(
		redis.NewClient(&redis.Options{Addr: redisAddress}), time.Hour, cache.RedisCompressionGZip)
	state := appstate.NewCache(
		cache.NewCache(cache.NewTwoLevelClient(inRedis, 10*time.Minute)), time.Hour)
	repos := apiclient.NewRepoServerClientset(repoServer, 60, tls.Configuration{DisableTLS: true})
	// The defaults of the flags of Argo CD's own command, in their order.
	const resync, jitter = 120 * time.Second, 60 * time.Second
	backoff := &wait.Backoff{Duration: 2 * time.Second, Factor: 3, Cap: 300 * time.Second}
	controls, err = controller.NewApplicationController(
		namespace, manager, client, applications, repos,
		commitclient.NewCommitServerClientset(""), state, kube.NewKubectl(),
		resync, 0, jitter, 0, backoff, 0, resync+jitter,
		0, 0, nil, nil, nil, 20, false, shards, nil, nil, false, false,
		normalizers.IgnoreNormalizerOpts{JQExecutionTimeout: time.Second},
		[]string{"all"}, false)
	if err != nil {
		return err
	}
	controls.GetMetricsServer().Addr = metrics
	controls.Run(ctx, 20, 10, 5)
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the controller ended")
}
