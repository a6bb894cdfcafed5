from warm_integrations.core.cancellation import *
