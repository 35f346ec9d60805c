// Curator's InterProcessMutex: an ephemeral sequential node; it lasts as long as the session, which ZooKeeper's client keeps.
// Option `until` = "LOST": the lock counts as lost when Curator says LOST; without, already when it says SUSPENDED.

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorMutex extends Adapter {
    static final Map<String, String> ERRORS = Map.of(
        // LockInternals.internalLockLoop: another node came before ours until the time was over; ours was deleted by then
        // (deleteOurPath), or this would have been an exception.
        "held by another", "fail",
        // InterProcessMutex.release: this thread has no lock; thrown before anything is sent.
        "java.lang.IllegalMonitorStateException", "fail",
        // KeeperException.ConnectionLossException and the rest: nobody knows what became of the request. A delete is tried
        // again in the background until it is done (DeleteBuilderImpl, guaranteed).
        "*", "info");

    CuratorFramework client;
    InterProcessMutex mutex;

    @Override void open() {
        // As "Getting started" has it; the two figures beside the ttl are its own defaults and example.
        client = CuratorFrameworkFactory.newClient(endpoints(), (int) (ttl * 1000), 15_000, new ExponentialBackoffRetry(1000, 3));
        boolean patient = "LOST".equals(option("until"));
        // The recipe's page: with SUSPENDED you cannot be certain that you still hold the lock. LOST is the server's word, or
        // that of a clock of Curator's own (ConnectionStateManager.checkSessionExpiration), and it doesn't say which.
        client.getConnectionStateListenable().addListener((from, state) -> {
            if (state == ConnectionState.LOST) lost("deadline");
            if (state == ConnectionState.SUSPENDED && !patient) lost("disconnected");
        });
        client.start();
        mutex = new InterProcessMutex(client, "/" + lock);
    }

    @Override String acquire(double wait) throws Exception {
        if (!mutex.acquire((long) (wait * 1000), TimeUnit.MILLISECONDS)) throw new Refused("held by another");
        return "";
    }

    @Override String release() throws Exception {
        mutex.release();
        return ""; // LockInternals.deleteOurPath: a node that is gone is no error, so this proves nothing
    }

    public static void main(String[] args) throws Exception {
        new CuratorMutex().speak("curator-recipes", InterProcessMutex.class, ERRORS);
    }
}
